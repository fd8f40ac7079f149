"""Backup: one file with the sessions, memories and settings of a workspace and of the user, and the way back."""
