"""The built-in model server: an OpenAI-compatible router on one port, one worker process a model.

`library` finds and fetches models, `pool` decides which are loaded, `engine` runs them, `http` answers clients. Read
`spec.py` first: it has the types that these four exchange.
"""
