"""Engine: the loop over the ports of `lmagent.core`. Begin with `turn.py` and `session.py`."""
