"""Offline: runs programs so that each address which they try to reach is seen, and none beyond this machine reached."""
