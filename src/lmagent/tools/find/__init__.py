"""Search: grep and glob. Read `grep.py` first."""
