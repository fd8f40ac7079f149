"""The models on this machine: files found, described, fetched from a hub and removed. Read `library.py` first."""
