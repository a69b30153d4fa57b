"""The reference model of the store: plain dicts and lists, no threads, no clock, no chance.

Read it to learn what the verbs of doorstep/stores/store.py mean; every store must behave exactly like it. The contract
suite and the lockstep machine compare them, and the simulation runs the engine on it. Verbs never await, so each is
atomic by itself; they check first and write afterwards, so one that raises has changed nothing. It lacks `post_on`:
there is no database here that a program could have a connection of its own to.
"""

from tests.reference.store import ReferenceStore

__all__ = ["ReferenceStore"]
