"""Floor 4: the surface for a single run: one task in, text or events out, an exit code."""
