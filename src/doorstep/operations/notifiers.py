"""The handlers for e-mail and Apprise channels. The e-mail handler runs in workers with a configured mail server, the
Apprise handler in workers with Apprise installed.

The target of a message is stored as an encrypted header of the channel's endpoint, so that no payload or log line
contains it.
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
from doorstep.model.listing import DeliveryAttempts
from doorstep.stores.store import Store
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.apprise import is_installed, send_by_apprise
from doorstep.transports.handler_replies import Handler, Received
from doorstep.transports.mail import Mail, MailServer, Report, earlier_report, send_mail

EMAIL_HANDLER = "doorstep.email"
APPRISE_HANDLER = "doorstep.apprise"
TARGET = "target"
"""The name of the endpoint header that contains the target of a channel's messages."""
OWNER = "owner"
"""The name of the endpoint header that contains the organization of the channel."""
TIMEOUT_SECONDS = 20.0
"""The time limit for one message. It is shorter if the leases require that. Importing Apprise takes one second of this
time."""
ORGS = frozenset({OPERATIONS_ORG})
"""The only organization whose endpoints may use these handlers."""
_APPRISE_PROCESSES_MAX = 4
"""How many Apprise processes one worker runs concurrently. Each uses 80 MiB of memory."""
_APPRISE_PROCESSES_OF_ORG_MAX = 2
_WAIT_SECONDS = 2.0
"""How long a message waits for a free process."""
_CONGESTED_SECONDS, _CONGESTED_DOUBLINGS_MAX = 20.0, 8
"""A message that got no process is retried after 20 seconds; by then, the current processes have ended. Each further
delay is twice as long as the previous one; otherwise, prolonged congestion would use up the attempts."""
_STORE_SECONDS = 5.0
_SPARE_SECONDS = 1.0
"""The handler stops this long before the attempt times out, so that the reason is recorded."""


class Notifiers:
    """The handlers that this process can run. Create this object in the event loop of the store. `server` is None if no
    mail server is configured."""

    def __init__(
        self, store: Store, directory: Directory, sealer: Sealer, guard: AddressGuard, server: MailServer | None
    ) -> None:
        self._store = store
        self._directory = directory
        self._sealer = sealer
        self._guard = guard
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._slots = OwnerSlots(_APPRISE_PROCESSES_MAX, _APPRISE_PROCESSES_OF_ORG_MAX, _WAIT_SECONDS)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        mail: dict[str, Handler] = {} if self._server is None else {EMAIL_HANDLER: self.email}
        return mail | ({APPRISE_HANDLER: self.apprise} if is_installed() else {})

    def email(self, message: Received) -> None:
        """Send a message by e-mail. This runs in a thread. Recipients that got the mail in an earlier attempt do not
        get it again."""
        assert self._server is not None, "it is a handler only if there is a server"
        job = self._job(message)
        to, content, report = job.target.split(","), message.json(), self._earlier_report(message)
        mail = Mail(to=to, subject=content["subject"], text=content["text"], mail_id=str(message.event_id))
        if left := report.left(to):
            report = report.then(send_mail(self._server, self._guard, mail, left, job.seconds_left))
        report.check()

    def _earlier_report(self, message: Received) -> Report:
        """The report of the earlier attempts, read from the attempt log in the store's event loop."""
        if message.attempt == 1:
            return Report()
        reading = self._store.find(message.org_id, DeliveryAttempts(delivery_id=message.delivery_id))
        attempts = asyncio.run_coroutine_threadsafe(reading, self._loop).result(_STORE_SECONDS)
        return earlier_report([attempt.response_body for attempt in attempts])

    async def apprise(self, message: Received) -> None:
        job = self._job(message)
        async with self._slots.slot(job.owner) as has_slot:
            if not has_slot:
                raise _congested(message.attempt)
            await send_by_apprise(job.target, message.json(), self._guard, job.seconds_left)

    def _job(self, message: Received) -> _Job:
        endpoint = self._directory.endpoint(message.endpoint_id)
        if endpoint is None:
            raise Permanent(Code.ENDPOINT_DELETED, "The channel was deleted.")
        headers, timeout_seconds = unseal_headers(endpoint, self._sealer), endpoint.timeout_seconds or TIMEOUT_SECONDS
        ends_at = time.monotonic() + timeout_seconds - min(_SPARE_SECONDS, timeout_seconds / 2)
        return _Job(headers[TARGET], headers.get(OWNER, str(message.endpoint_id)), ends_at)


class _Job(NamedTuple):
    """The target of a message, the owner of its channel, and its deadline."""

    target: str
    owner: str
    ends_at: float

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())


def _congested(attempt: int) -> Transient:
    again = _CONGESTED_SECONDS * 2 ** min(attempt - 1, _CONGESTED_DOUBLINGS_MAX)
    words = "All Apprise processes of this worker were busy with other messages."
    return Transient(Code.NO_PLACE, words, retry_after=again)


class OwnerSlots:
    """A limited number of slots, of which each owner may hold only some."""

    def __init__(self, most: int, of_one: int, wait_seconds: float) -> None:
        """There are `most` slots in all, and each owner may hold up to `of_one` of them. A caller waits up to
        `wait_seconds` for a slot."""
        self._of_one = of_one
        self._wait_seconds = wait_seconds
        self._all = asyncio.Semaphore(most)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Contains only owners that have a slot or wait for one."""

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[bool]:
        """Hold a slot until the block ends; yields False if none was free in time."""
        own = self._own.setdefault(owner, asyncio.Semaphore(self._of_one))
        async with AsyncExitStack() as held:
            yield await self._take(held, own)

    async def _take(self, held: AsyncExitStack, own: asyncio.Semaphore) -> bool:
        """Acquire the owner's semaphore first: an owner that has used up its share must not block others."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await held.enter_async_context(own)
                await held.enter_async_context(self._all)
        except TimeoutError:
            return False
        return True
