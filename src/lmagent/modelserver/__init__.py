"""The built-in model server: an OpenAI-compatible router on one port, one worker process a model."""
