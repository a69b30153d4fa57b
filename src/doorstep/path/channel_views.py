"""Beside the path: channels as their organization sees them, with how they fare."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.errors import NotFound
from doorstep.model.channel import OPERATIONS_ORG, Channel, ChannelTest, ChannelTests
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import Letters, Queue
from doorstep.model.outcome import Code
from doorstep.model.rollup import Figures, Span
from doorstep.stores.store import Store

T = TypeVar("T")
U = TypeVar("U")

_LOOKED_BACK = ((Span.MINUTE, 2 * DAY), (Span.HOUR, 90 * DAY))
"""How exactly it is known when a message last arrived, and for how long."""
_EXAMINED_MAX = 20
_AT_ONCE_MAX = 4
CameOfTest = Literal["waiting", "delivered", "failed"]
_NO_FAULT_OF_IT = (Code.SKIPPED, Code.ENDPOINT_DELETED)


class ChannelView(NamedTuple):
    """A channel with how it fares."""

    channel: Channel
    endpoint: Endpoint
    circuit: Circuit
    last_failed: Delivery | None
    """The message that failed last: it is given up, or is tried again."""
    last_delivered_at: Instant | None
    """To the minute, later to the hour; of a test to the microsecond."""
    last_test: Delivery | None
    """The newest test; None too while it is being accepted, and once it has been cleaned away."""

    @property
    def came_of_test(self) -> CameOfTest | None:
        """What came of it."""
        if self.last_test is None:
            return None
        if self.last_test.state is DeliveryState.DELIVERED:
            return "delivered"
        return "failed" if self.last_test.state in DEAD_STATES else "waiting"


class ChannelReader:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def views(self, org_id: UUID) -> list[ChannelView]:
        """In the order of their creation."""
        return await self._views(*await self.channels_and_tests(org_id))

    async def view(self, org_id: UUID, channel_id: UUID) -> ChannelView:
        channels, tests = await self.channels_and_tests(org_id)
        return (await self._views([the_one(channels, channel_id)], tests))[0]

    async def channels(self, org_id: UUID) -> list[Channel]:
        return (await self.channels_and_tests(org_id))[0]

    async def channel(self, org_id: UUID, channel_id: UUID) -> Channel:
        return the_one(await self.channels(org_id), channel_id)

    async def channels_and_tests(self, org_id: UUID) -> tuple[list[Channel], ChannelTests]:
        """And what is remembered of their tests; version 0 where there have been none."""
        arranged = await self._store.arrangements(org_id)
        tests = next((one for one in arranged if isinstance(one, ChannelTests)), ChannelTests(org_id=org_id))
        return [one for one in arranged if isinstance(one, Channel)], tests

    async def _views(self, channels: Sequence[Channel], tests: ChannelTests) -> list[ChannelView]:
        """What can be asked for all of them together is."""
        ids = [one.channel_id for one in channels]
        endpoints = {one.endpoint_id: one for one in await self._store.these_endpoints(OPERATIONS_ORG, ids)}
        circuits = await self._store.circuits(OPERATIONS_ORG, ids)
        arrived = await self._last_delivered_at(ids)
        tested = await _of_each(ids, lambda one: self._message(tests.last_of(one)))
        levels = await self._store.levels(OPERATIONS_ORG, ids)
        failed = await _of_each(ids, lambda one: self._last_failed(one, levels[one]))
        return [
            ChannelView(
                channel=one,
                endpoint=endpoints[key],
                circuit=circuits.get(key) or Circuit(endpoint_id=key),
                last_failed=failure,
                last_delivered_at=_later(_arrived_at(test), arrived.get(key)),
                last_test=test,
            )
            for one, key, failure, test in zip(channels, ids, failed, tested, strict=True)
        ]

    async def _last_failed(self, channel_id: UUID, now: Figures) -> Delivery | None:
        """Most channels have nothing that failed, and are not asked about."""
        found: list[Delivery] = []
        if now.now_dead:
            wanted = Letters(endpoint_id=channel_id)
            letters = await self._store.dead_letters(OPERATIONS_ORG, wanted, limit=_EXAMINED_MAX)
            found += (one for one in letters.items if one.code not in _NO_FAULT_OF_IT)
        if now.now_open:
            waiting = Queue(endpoint_id=channel_id)
            found += (await self._store.retry_queue(OPERATIONS_ORG, waiting, limit=_EXAMINED_MAX)).items
        return max(found, key=failed_at, default=None)

    async def _last_delivered_at(self, channel_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        now, found = self._clock.now(), dict[UUID, Instant]()
        for span, back in _LOOKED_BACK:
            left = [one for one in channel_ids if one not in found]
            trends = await self._store.trends(OPERATIONS_ORG, left, span, now - back, now + SECOND)
            arrived = {key: [point.at for point in trend if point.figures.succeeded] for key, trend in trends.items()}
            found |= {key: at[-1] for key, at in arrived.items() if at}
        return found

    async def _message(self, test: ChannelTest | None) -> Delivery | None:
        if test is None:
            return None
        messages = await self._store.deliveries(OPERATIONS_ORG, test.message_id)
        return messages[0] if messages else None


def the_one(channels: Sequence[Channel], channel_id: UUID) -> Channel:
    """NotFound if it is not among them."""
    found = next((one for one in channels if one.channel_id == channel_id), None)
    if found is None:
        raise NotFound(f"no channel {channel_id}")
    return found


async def _of_each(these: Sequence[T], ask: Callable[[T], Awaitable[U]]) -> list[U]:
    """Together, but not all at once: an organization with many channels must not keep others from the store."""
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def answer(one: T) -> U:
        async with places:
            return await ask(one)

    return await asyncio.gather(*map(answer, these))


def failed_at(delivery: Delivery) -> Instant:
    """When it was given up, or last tried in vain."""
    return delivery.settled_at or delivery.last_attempt_at or 0


def _arrived_at(test: Delivery | None) -> Instant | None:
    return test.settled_at if test is not None and test.state is DeliveryState.DELIVERED else None


def _later(one: Instant | None, other: Instant | None) -> Instant | None:
    return max((at for at in (one, other) if at is not None), default=None)
