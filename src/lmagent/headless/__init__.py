"""Floor 4: the surface without a person at the keys: one task in, text or events out, an exit code."""
