"""HTTP: the guard, the table of routes, and the server. Read `app.py` first."""
