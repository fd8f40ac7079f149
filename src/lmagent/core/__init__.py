"""Floor 0: the data and the ports. msgspec and the standard library only; no I/O, no event loop."""
