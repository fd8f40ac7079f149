"""The schedule of a workspace: when jobs are due, how they ended, and the inbox. Files are the truth."""
