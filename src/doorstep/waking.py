"""Hints that there may be something to do. One that is lost or comes twice does no harm: services look anyway."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from doorstep.assembly import Parts
from doorstep.residence import Residence

_TELL_SECONDS = 0.01
"""How often other processes are told at most that something was posted here."""


class Waking(Residence):
    """A part of class Doorstep."""

    _parts: Parts

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._telling: asyncio.TimerHandle | None = None

    def wake_dispatcher(self) -> None:
        """There may be something due: a hint, in this event loop."""
        if self._worker is not None:
            self._worker.wake()

    def wake(self) -> None:
        """There may be something in the outbox: a hint, from any thread. Without it, it is found a little later."""
        home = self._home  # read once: another thread may be closing
        if home is not None and home[0] == os.getpid():
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                home[1].call_soon_threadsafe(self._hint)

    def _hint(self) -> None:
        """To our own forwarder; if none is running here, to those of other processes, once for all of a moment."""
        loop = asyncio.get_running_loop()
        if self._worker is not None:
            self._hint_forwarder()
        elif self._telling is None or self._telling.when() <= loop.time():
            self._telling = loop.call_later(_TELL_SECONDS, self.store.tell_posted)

    def _hint_forwarder(self) -> None:
        if self._worker is not None:
            self._parts.forwarder.hint()

    def _wake_bulk_runner(self) -> None:
        """A bulk operation was begun, or has its orders."""
        if self._worker is not None:
            self._parts.bulk_runner.wake.set()
