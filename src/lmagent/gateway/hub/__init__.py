"""Hub: the sessions of the workspace as a server sees them."""
