"""Policy decides which tool calls run, are asked about, or are refused. Read `gate.py` first."""
