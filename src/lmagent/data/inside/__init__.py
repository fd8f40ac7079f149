"""The worker: reads one file with tabular data, in the sandbox. Read `main` first.

A bare Python runs it (3.9 or newer), so it imports nothing of lmagent, and its libraries only when a file needs them.
"""
