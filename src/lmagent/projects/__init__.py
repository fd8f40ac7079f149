"""Projects: folders that are agents. Read `spec.py` first (agent.yaml), then `load.py` (what it becomes)."""
