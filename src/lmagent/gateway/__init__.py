"""Gateway: the agent over HTTP, for browsers, phones and scripts. Read `gateway.py` first."""
