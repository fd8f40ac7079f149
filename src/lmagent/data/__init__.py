"""Tables: `data_view` looks into CSV, JSON, Parquet, Excel, SQLite and Arrow files, and `data_plot` draws them.

Read `feature.py` first. No file is opened in this process: see `worker.py` and `inside`.
"""
