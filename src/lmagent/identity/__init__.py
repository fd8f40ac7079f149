"""Identity: what the files of a workspace say about the agent, the user and the project. Read `files.py` first."""
