"""The store as a reference model: plain dicts and lists, no threads, no clock, no chance.

Read it to learn what the verbs of stores/store.py mean; every other store must behave exactly like it (the
contract suite compares them). Nothing survives the process. Verbs never await, so each is atomic by itself;
they check first and write afterwards, so one that raises has changed nothing.
"""

from doorstep.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
