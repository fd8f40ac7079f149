"""Distributes the events of sessions to the clients that watch them. Read `broadcast.py` first."""
