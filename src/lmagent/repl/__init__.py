"""Floor 4: the terminal surface."""
