"""The guard of the user's git: finds what git would run outside the sandbox. Read `guard.py` first."""
