"""The handlers of channels that are no HTTP: they run in every worker that has what they need, like any other handler.

Where a message goes is sealed with the channel's endpoint, as its headers; so no payload and no log line has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

from doorstep.encryption import Sealer
from doorstep.engine.directory import Directory, unseal_headers
from doorstep.errors import Permanent, Transient
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Code
from doorstep.stores.store import Store
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.apprise import is_installed, send_by_apprise
from doorstep.transports.handler_replies import Handler, Received
from doorstep.transports.mail import Mail, MailServer, Report, earlier_report, send_mail

EMAIL_HANDLER = "doorstep.email"
APPRISE_HANDLER = "doorstep.apprise"
TARGET = "target"
"""The name under which a channel's endpoint keeps where its messages go."""
OWNER = "owner"
"""Likewise: whose channel it is."""
TIMEOUT_SECONDS = 20.0
"""For one message, where leases are long enough; a process that imports Apprise takes a second of it."""
ORGS = frozenset({OPERATIONS_ORG})
"""The only organization whose endpoints reach these handlers."""
_APPRISE_PROCESSES_MAX = 4
"""At once, in one worker: each of them takes 80 MiB."""
_APPRISE_PROCESSES_OF_ORG_MAX = 2
_PLACE_SECONDS = 2.0
"""For so long a message waits for one of them."""
_CROWDED_SECONDS, _CROWDED_DOUBLINGS_MAX = 20.0, 8
"""Who got none comes again when those that are there now are over, then after twice as long, and so on: or a crowd that
lasts would use up its attempts."""
_STORE_SECONDS = 5.0
_SPARE_SECONDS = 1.0
"""We give up before the attempt is given up: so it is known why."""


class Notifiers:
    """What this process can send by, from the event loop that it is made in. `server` is None where none is set."""

    def __init__(
        self, store: Store, directory: Directory, sealer: Sealer, guard: AddressGuard, server: MailServer | None
    ) -> None:
        self._store = store
        self._directory = directory
        self._sealer = sealer
        self._guard = guard
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._places = SharedPlaces(_APPRISE_PROCESSES_MAX, _APPRISE_PROCESSES_OF_ORG_MAX, _PLACE_SECONDS)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        mail: dict[str, Handler] = {} if self._server is None else {EMAIL_HANDLER: self.email}
        return mail | ({APPRISE_HANDLER: self.apprise} if is_installed() else {})

    def email(self, message: Received) -> None:
        """In a thread. Who has the mail from an attempt before does not get it again."""
        assert self._server is not None, "without a server it is not among the handlers"
        errand = self._errand(message)
        to, said, report = errand.target.split(","), message.json(), self._earlier(message)
        mail = Mail(to=to, subject=said["subject"], text=said["text"], mail_id=str(message.event_id))
        if left := report.left(to):
            report = report.then(send_mail(self._server, self._guard, mail, left, errand.seconds_left))
        report.check()

    def _earlier(self, message: Received) -> Report:
        """From the attempt log, which the event loop reads."""
        if message.attempt == 1:
            return Report()
        reading = self._store.attempts(message.org_id, message.delivery_id)
        attempts = asyncio.run_coroutine_threadsafe(reading, self._loop).result(_STORE_SECONDS)
        return earlier_report([attempt.response_body for attempt in attempts])

    async def apprise(self, message: Received) -> None:
        errand = self._errand(message)
        async with self._places.place(errand.owner) as has_place:
            if not has_place:
                raise _crowded(message.attempt)
            await send_by_apprise(errand.target, message.json(), self._guard, errand.seconds_left)

    def _errand(self, message: Received) -> _Errand:
        endpoint = self._directory.endpoint(message.endpoint_id)
        if endpoint is None:
            raise Permanent(Code.ENDPOINT_DELETED, "The channel was deleted.")
        kept, timeout_seconds = unseal_headers(endpoint, self._sealer), endpoint.timeout_seconds or TIMEOUT_SECONDS
        ends_at = time.monotonic() + timeout_seconds - min(_SPARE_SECONDS, timeout_seconds / 2)
        return _Errand(kept[TARGET], kept.get(OWNER, str(message.endpoint_id)), ends_at)


class _Errand(NamedTuple):
    """Where a message goes, whose it is, and until when."""

    target: str
    owner: str
    ends_at: float

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())


def _crowded(attempt: int) -> Transient:
    again = _CROWDED_SECONDS * 2 ** min(attempt - 1, _CROWDED_DOUBLINGS_MAX)
    words = "All places for Apprise in this worker were taken by other messages."
    return Transient(Code.NO_PLACE, words, retry_after=again)


class SharedPlaces:
    def __init__(self, most: int, of_one: int, patience_seconds: float) -> None:
        """So many at once, so many of them of one owner; who gets none waits for so long."""
        self._of_one = of_one
        self._patience_seconds = patience_seconds
        self._all = asyncio.Semaphore(most)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Only of those who have a place or wait for one."""

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[bool]:
        """A place until the block ends, and True; False where none was to be had."""
        own = self._own.setdefault(owner, asyncio.Semaphore(self._of_one))
        async with AsyncExitStack() as held:
            yield await self._take(held, own)

    async def _take(self, held: AsyncExitStack, own: asyncio.Semaphore) -> bool:
        """The owner's own first: who has had his share must not stand in the way of others."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                await held.enter_async_context(own)
                await held.enter_async_context(self._all)
        except TimeoutError:
            return False
        return True
