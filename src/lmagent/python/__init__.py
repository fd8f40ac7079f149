"""Floor 4: the surface for Python programs: `from lmagent import Agent, tool`. Read `agent.py` first."""
