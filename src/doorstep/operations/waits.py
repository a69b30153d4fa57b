"""Reads the facts that explain the waits of a delivery (policy/waits.py), and adds past holds to its history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, HistoryEntry
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event
from doorstep.operations.reader import Reader
from doorstep.policy.waits import HELD, PLANNED, Life, Wait, waits_of

_CIRCUIT_CHANGES_MAX = 500
_ENDPOINT_ACTIONS_MAX = 100


class Change(NamedTuple):
    """One transition of a delivery, with what held the delivery back before it."""

    entry: HistoryEntry
    holds: tuple[Wait, ...]


async def read_history(reader: Reader, delivery: Delivery, now: Instant, revive_after_seconds: float) -> list[Change]:
    """Every transition of a delivery, oldest first."""
    endpoint = await reader.endpoint(delivery.org_id, delivery.endpoint_id)
    event = None
    with suppress(NotFound):  # the event was deleted
        event = (await reader.event(delivery.org_id, delivery.event_id)).event
    attempts = await reader.attempts(delivery.org_id, delivery.delivery_id)
    history = await reader.history(delivery.org_id, delivery.delivery_id)
    actions = await endpoint_actions(reader, delivery, endpoint)
    life = life_of(delivery, endpoint, event, history, attempts, actions, revive_after_seconds)
    return list(changes_of(history, await read_waits(reader, life, now)))


async def endpoint_actions(reader: Reader, delivery: Delivery, endpoint: Endpoint) -> Sequence[AuditEntry]:
    """The newest actions on the delivery's endpoint, newest first. Actions before the delivery do not affect it."""
    if endpoint.updated_at <= delivery.created_at:
        return ()
    page = await reader.audit(delivery.org_id, None, None, None, _ENDPOINT_ACTIONS_MAX, [endpoint.endpoint_id])
    return page.items


def life_of(
    delivery: Delivery,
    endpoint: Endpoint,
    event: Event | None,
    history: Sequence[HistoryEntry],
    attempts: Iterable[Attempt],
    actions: Sequence[AuditEntry],
    revive_after_seconds: float,
) -> Life:
    """The facts about a delivery, without the changes of its circuit. `event` is None if the event was deleted."""
    return Life(
        delivery=delivery,
        endpoint=endpoint,
        deliver_at=event.deliver_at if event else None,
        ordering_key=event.ordering_key if event else None,
        history=history,
        retries_at={one.number: one.next_retry_at for one in attempts if one.next_retry_at},
        revive_after_seconds=revive_after_seconds,
        endpoint_actions=actions,
    )


async def read_waits(reader: Reader, life: Life, now: Instant) -> list[Wait]:
    """The waits of a delivery. The changes of its circuit are read only if they may explain one of them."""
    waits, delivery = waits_of(life, now), life.delivery
    if all(wait.kind == PLANNED for wait in waits):
        return waits
    changes = await reader.circuit_history(delivery.org_id, delivery.endpoint_id, _CIRCUIT_CHANGES_MAX)
    return waits_of(life._replace(circuit_changes=changes), now)


def changes_of(history: Iterable[HistoryEntry], waits: Iterable[Wait]) -> Iterator[Change]:
    """The transitions, each with the holds that ended before it. The present hold belongs to none of them. Both are in
    order; a delivery that was probed for days has thousands."""
    held = deque(wait for wait in waits if wait.kind == HELD)
    for entry in history:
        ended = []
        while held and held[0].end <= entry.at:
            ended.append(held.popleft())
        yield Change(entry, tuple(ended))
