"""The model's context: how large it may be, what gets into it, and how it is shortened; read `compaction.py` first."""
