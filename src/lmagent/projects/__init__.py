"""Projects: the goal, the state and the open tasks of work over many sessions. Read `record.py` first."""
