"""Logins to servers at an address (OAuth): `flow.py` performs one, `auth.py` uses it. Read `../oauth.py` first."""
