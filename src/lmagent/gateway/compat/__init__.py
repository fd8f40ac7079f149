"""The HTTP and socket protocol of earlier clients, translated to commands and events. Read `words.py` first."""
