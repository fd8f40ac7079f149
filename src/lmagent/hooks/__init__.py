"""Hooks: programs of the user that see, and may stop, what the agent does. Read `feature.py` first."""
