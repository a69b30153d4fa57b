"""The Forwarder: accepts the messages in the outbox as events, in the order of posting.

Only one process at a time forwards messages; other processes would only repeat its work. A hint may arrive before the
commit that it announces. So after a hint the forwarder polls with short but growing pauses, until it is back at its
normal interval. After a while without messages it asks the store to announce the next one, and sleeps until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from doorstep.clock import Clock
from doorstep.engine.accept import Accepter, Draft
from doorstep.errors import DoorstepError, InvalidInput, Overloaded, StoreError
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.outbox import OutboxMessage, event_fields
from doorstep.services.coordination import TaskLock, poll_seconds
from doorstep.stores.limits import storable
from doorstep.stores.store import Store, Task, Topic
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.redaction import safe_message

POLL_SECONDS = 0.1
"""How often to poll a store that does not report the commits of other programs unless it is asked (PostgreSQL). A poll
that finds nothing takes 0.17 ms of CPU time in this process and 0.08 ms in the server."""
POLLS_BEFORE_SLEEP = 20
"""The number of polls without a message, about a second, after which the store is asked. The store asks every sender to
notify, which makes their commits wait for each other, so it is not asked between messages that follow each other."""
NOTICED_POLL_SECONDS = 1.0
"""How often to poll a store that reports such commits, in case a hint was lost. Also how soon to notice that the
process that was forwarding was killed: messages wait no longer than its lease plus one second."""
_SOON_SECONDS = 0.001
_BATCH_MAX = 500
LEASE_SECONDS = 3.0
"""How long other processes wait before they take over from one that was killed while forwarding."""
_TEMPORARY = (StoreError, Overloaded, OSError, MemoryError)
"""Temporary errors. Any other error is attributed to the message, which would otherwise fail forever and block the
others."""
_TRIES = 2
"""How many times the forwarder tries to accept a message. The second try is needed because an endpoint may be deleted
between the check and the acceptance."""


class Forwarder:
    name = "forwarder"

    def __init__(self, store: Store, accepter: Accepter, clock: Clock, telemetry: Telemetry, holder: str) -> None:
        self._store = store
        self._accepter = accepter
        self._clock = clock
        self._telemetry = telemetry
        self.lock = TaskLock(store, Task.OUTBOX, holder, clock, LEASE_SECONDS)
        self._batch_max = _BATCH_MAX
        self._commits_noticed = store.features.notices_posts
        self._sleep_seconds = poll_seconds(store, NOTICED_POLL_SECONDS)
        self._pause_seconds = _SOON_SECONDS
        self._empty_polls = 0
        """How many polls in a row found nothing, since the last hint."""
        self._is_asleep = False
        """Whether the store announces the next message."""
        self._is_standby = False
        """Whether messages wait while another process has the lock. It may have been killed, and then nothing reports
        the end of its lease."""
        self.wake = asyncio.Event()

    def hint(self) -> None:
        """Wake the forwarder, because this process may have posted a message. The message may not be committed yet."""
        self._pause_seconds = _SOON_SECONDS
        self._empty_polls = 0
        self.wake.set()

    async def run_once(self) -> float | None:
        """Forward one batch. Runs again immediately until nothing is left."""
        if await self.forward():
            self._pause_seconds = _SOON_SECONDS
            self._empty_polls = 0
            await self._stay_awake()
            return 0.0
        pause = self._sleep_seconds if self._commits_noticed else await self._poll_pause()
        return min(pause, NOTICED_POLL_SECONDS) if self._is_standby else pause

    async def _poll_pause(self) -> float:
        """The pause after a poll that found nothing. Asks the store to announce the next message when it is time, and
        then polls once more, because a message may have been committed before."""
        self._empty_polls += 1
        pause, self._pause_seconds = self._pause_seconds, min(2 * self._pause_seconds, POLL_SECONDS)
        if self._empty_polls < POLLS_BEFORE_SLEEP or self._is_standby:
            await self._stay_awake()
            return pause
        was_asleep, self._is_asleep = self._is_asleep, await self._store.announce_posts(True)
        if not self._is_asleep:
            return pause
        return self._sleep_seconds if was_asleep else 0.0

    async def _stay_awake(self) -> None:
        """Poll instead of being notified of each message."""
        if self._is_asleep:
            self._is_asleep = False
            await self._store.announce_posts(False)

    async def forward(self) -> int:
        """Forward one batch; returns how many messages were accepted or rejected."""
        try:
            return await self._forward()
        except Exception:
            with suppress(DoorstepError):
                await self.lock.release()  # another process may succeed
            raise

    async def _forward(self) -> int:
        messages = await self._next_batch()
        if not messages:
            await self.lock.release()
            return 0
        if accepted := await self._accept(messages):
            await self._store.clear_outbox([message.event_id for message in accepted])
        return len(messages)

    async def _next_batch(self) -> list[OutboxMessage]:
        """The oldest messages; none while another process is forwarding."""
        self._is_standby = False
        if not self.lock.is_held and not await self._store.any_waiting(Topic.OUTBOX):
            return []
        if not await self.lock.acquire():
            self._is_standby = True
            return []
        return await self._store.outbox(self._batch_max)

    async def _accept(self, messages: Sequence[OutboxMessage]) -> Sequence[OutboxMessage]:
        """Accept the messages in one batch, or one by one if the batch fails because of one of them. Returns the
        accepted messages."""
        try:
            await self._accept_together(messages)
            return messages
        except Overloaded:
            self._batch_max = max(1, self._batch_max // 2)
            raise
        except _TEMPORARY:
            raise
        except Exception:  # noqa: BLE001  accepting them one by one shows which message is invalid, and why
            return [message for message in messages if await self._accept_alone(message)]

    async def _accept_together(self, messages: Sequence[OutboxMessage]) -> None:
        await self._accepter.accept([draft_from(message) for message in messages])
        self._batch_max = min(2 * self._batch_max, _BATCH_MAX)

    async def _accept_alone(self, message: OutboxMessage) -> bool:
        for tries_left in reversed(range(_TRIES)):
            try:
                await self._accepter.accept([await self._with_departed(draft_from(message))])
                return True
            except _TEMPORARY:
                raise
            except Exception as error:  # noqa: BLE001  an error of one message must not block the others
                if not tries_left:
                    await self._reject(message, error)
        return False

    async def _with_departed(self, draft: Draft) -> Draft:
        """Mark the endpoints that have been deleted since the draft was posted. Raises NotFound for an endpoint that
        never existed."""
        named = [await self._store.get(Endpoint, draft.org_id, one) for one in dict.fromkeys(draft.endpoint_ids or ())]
        deleted = tuple(one.endpoint_id for one in named if one.state is EndpointState.DELETED)
        return replace(draft, deleted=deleted)

    async def _reject(self, message: OutboxMessage, error: Exception) -> None:
        now = self._clock.now()
        reason = str(error) if isinstance(error, DoorstepError) else safe_message(error)
        await self._store.reject(message.event_id, storable(reason), now)
        self._telemetry.note(
            now,
            "error",
            "a message in the outbox can never be accepted and was rejected",
            event_id=message.event_id,
            org_id=message.org_id,
            reason=reason,
            correlation_id=message.options.correlation_id,
        )


def draft_from(message: OutboxMessage) -> Draft:
    """The draft that was posted, with the id that its sender received. Raises InvalidInput if it cannot be read."""
    if message.flaw is not None:
        raise InvalidInput("options", message.flaw)
    return Draft(endpoint_ids=message.options.endpoint_ids, **event_fields(message))
