"""The stores, which keep all persistent data. Read `store.py` first: it defines the protocol that every store
implements."""
