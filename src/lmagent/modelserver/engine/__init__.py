"""The programs that run one model each in a process of their own. Read `worker.py` first."""
