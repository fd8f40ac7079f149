"""The model's tools for the workspace, one a file; every path goes through `Beneath` (`beneath.py`)."""
