"""Model servers: one protocol (OpenAI chat completions) over one transport. Begin with `served.py`."""
