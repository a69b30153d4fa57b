"""The reference model of the store: plain dicts and lists; no threads, no clock, no randomness.

Read it to learn the semantics of the methods in doorstep/stores/store.py: every store must behave exactly like this
model. The contract suite and the lockstep machine compare the two, and the simulation runs the engine on the model. Its
methods never await, so each one is atomic. They check before they write, so a method that raises has changed nothing.
The model has no `post_on`, because it has no database to which a program could open its own connection.
"""

from tests.reference.store import ReferenceStore

__all__ = ["ReferenceStore"]
