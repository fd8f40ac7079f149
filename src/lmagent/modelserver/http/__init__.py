"""The OpenAI-compatible HTTP server in front of the workers. Read `router.py` first, then `relay.py`."""
