"""Floor ½: settings, and the layers they come from. Nothing here reads the process environment on import."""
