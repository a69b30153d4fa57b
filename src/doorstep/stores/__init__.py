"""Where everything that matters is kept. `store.py` is the protocol: read it first; the other modules implement it."""
