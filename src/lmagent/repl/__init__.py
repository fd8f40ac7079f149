"""Floor 4: the terminal surface for a person: inline, append-only, one event stream in, commands out."""
