"""The index of long-term memory: it finds items by words and by meaning. Read `index.py` first, then `recipe.py`."""
