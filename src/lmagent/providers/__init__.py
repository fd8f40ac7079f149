"""Floor 1: model servers. One dialect (OpenAI chat completions) over one transport, tolerant in what it accepts."""
