"""API: the handlers of the gateway's own routes, one file a subject."""
