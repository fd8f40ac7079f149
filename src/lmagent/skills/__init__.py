"""Skills: instructions (SKILL.md) and tested Python functions that the agent can use. Read `shelf.py` first."""
