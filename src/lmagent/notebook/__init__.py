"""Notebook: the goal, the state and the open tasks of work over many sessions, in a workspace. Read `record.py` first."""
