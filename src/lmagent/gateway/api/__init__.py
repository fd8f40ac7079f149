"""API: the handlers of our own routes, one file a subject."""
