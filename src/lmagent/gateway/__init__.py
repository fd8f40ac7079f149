"""Gateway: the same agent from a browser, a phone, a script."""
