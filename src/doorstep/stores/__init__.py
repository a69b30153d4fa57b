"""Where everything that matters is kept. `store.py` is the protocol; the other modules implement it."""
