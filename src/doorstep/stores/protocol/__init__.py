"""The verbs of the store, one concept a module. Read `stores/store.py` first: it says what holds for all of them."""
