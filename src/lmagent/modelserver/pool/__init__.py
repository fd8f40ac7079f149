"""The worker processes: which are started, lent to requests and ended. Read `admission.py` first, then `pool.py`."""
