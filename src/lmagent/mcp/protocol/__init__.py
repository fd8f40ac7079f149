"""The protocol: the servers themselves, on a thread of their own. Only this folder and `login` know the SDK."""
