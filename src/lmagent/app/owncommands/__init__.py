"""The user's own slash commands: Markdown files that are sent as prompts. Read `files.py` first, then `expand.py`."""
