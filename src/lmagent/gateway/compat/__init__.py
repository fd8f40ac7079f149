"""The HTTP and socket protocol of earlier clients, translated to commands and events. Read `http.py` first."""
