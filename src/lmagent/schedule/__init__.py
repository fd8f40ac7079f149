"""The schedule of a workspace: when jobs are due, what became of them, and the inbox. Files are the truth."""
