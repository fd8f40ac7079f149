"""Distributes the events of sessions to the clients that watch them; `broadcast.py` comes first."""
