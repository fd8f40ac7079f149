"""Config: settings, and the layers they come from. No import here reads the environment. Read `loader.py` first."""
