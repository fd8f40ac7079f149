"""The web: pages that the agent reads, and searches. Read `fetch.py` first; `guard.py` decides where data may go."""
