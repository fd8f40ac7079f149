"""Self-test: this installation checks itself, offline: `lmagent doctor --self-test`."""
