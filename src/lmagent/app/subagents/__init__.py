"""Sub-agents as sessions of the host, and the lines about them."""
