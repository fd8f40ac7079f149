"""Notebook: goal, state and open tasks of work over many sessions, in a workspace. Read `record.py` first."""
