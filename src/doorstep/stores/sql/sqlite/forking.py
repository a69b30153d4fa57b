"""No connection of ours is open, and none of our threads is inside SQLite, at the moment when the process forks.

SQLite remembers for all connections of a process which locks they have on a file. A forked process inherits that memory
and none of the locks: connections that it opens by itself believe to be protected, and are not. When its parent closes,
the log is removed that the child still writes to, and with it events that it has been told are accepted. A fork in the
middle of a commit leaves the child a lock that nobody will ever give back.

So a fork waits for the end of what is under way, and takes the idle connections away; the next use opens another.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Owner(Protocol):
    """Keeps connections open while nobody uses them."""

    def let_go(self) -> None:
        """Close them; nobody is using them."""


class _Use:
    """`with using_sqlite:` around everything that is done with connections, in whichever thread. Not one in another."""

    def __init__(self) -> None:
        self._owners: WeakSet[Owner] = WeakSet()
        self._forking = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._stopped = False

    def owned_by(self, owner: Owner) -> None:
        """Have its connections closed before a fork."""
        self._owners.add(owner)

    def __enter__(self) -> None:
        with self._changed:
            while self._stopped:
                self._changed.wait()
            self._users += 1

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._users -= 1
            if not self._users:
                self._changed.notify_all()

    # -- around a fork -------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._forking.acquire()
        with self._changed:
            self._stopped = True
            while self._users:
                self._changed.wait()
        for owner in list(self._owners):
            with suppress(Exception):  # the fork happens in any case
                owner.let_go()

    def go_on(self) -> None:
        """In the parent."""
        with self._changed:
            self._stopped = False
            self._changed.notify_all()
        self._forking.release()

    def begin_anew(self) -> None:
        """In the child, where nobody is left who could be waiting."""
        self._begin()
        self._forking.release()


using_sqlite = _Use()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=using_sqlite.stop, after_in_parent=using_sqlite.go_on, after_in_child=using_sqlite.begin_anew
    )
