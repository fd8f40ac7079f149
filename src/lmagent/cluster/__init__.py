"""Many workers on PostgreSQL: the sessions' logs, the queue, and the commands of gateways. Read `database.py` first."""
