"""The sandboxes that commands run in, one backend a file; read `choose.py` first."""
