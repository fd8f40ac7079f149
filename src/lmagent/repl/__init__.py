"""Floor 4: the interactive terminal: inline, append-only, one event stream in, commands out."""
