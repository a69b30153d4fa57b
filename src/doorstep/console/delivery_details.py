"""Everything that is known of one delivery, put together for a page: attempts, waits, history, and who gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from doorstep.console.attempts import ShownAttempt, sending_of
from doorstep.console.request import PageRequest
from doorstep.console.timeline import Edge, Key, Timeline, phase_keys, timeline
from doorstep.console.waits import PLANNED, Life, waits_of
from doorstep.model.action import ACTS_ON, ActionKind, AuditEntry
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event
from doorstep.operations.reader import Described

ATTEMPTS_SHOWN = 30
_HISTORY_SHOWN = 100
_CIRCUIT_CHANGES_MAX = 500
_ENDPOINT_ACTS_MAX = 100


class DeliveryDetails(NamedTuple):
    delivery: Delivery
    endpoint: Endpoint
    held: str | None
    tries: list[ShownAttempt]
    """The newest of them, the newest first."""
    tries_before: int
    """How many older ones there are."""
    history: list[HistoryLine]
    timeline: Timeline
    acts: frozenset[ActionKind]
    """What its state allows."""

    @property
    def phase_keys(self) -> list[Key]:
        """Of the parts that its attempts had."""
        return phase_keys(bar for one in self.tries for bar in one.parts)


async def delivery_details(visit: PageRequest, delivery: Delivery, event: Event | None) -> DeliveryDetails:
    return (await deliveries_details(visit, [delivery], event))[0]


async def deliveries_details(
    visit: PageRequest, deliveries: Sequence[Delivery], event: Event | None
) -> list[DeliveryDetails]:
    """`event` is None where it was deleted: what is kept of its deliveries can be seen all the same."""
    store, reading, ids = (
        visit.doorstep.components.store,
        visit.doorstep.components.reader,
        [one.endpoint_id for one in deliveries],
    )
    endpoints = {one.endpoint_id: one for one in await store.these_endpoints(visit.org_id, ids)}
    described = await reading.described(visit.org_id, deliveries)
    return await asyncio.gather(*(_dossier(visit, one, endpoints[key], event) for one, key in zip(described, ids)))


async def _dossier(visit: PageRequest, one: Described, endpoint: Endpoint, event: Event | None) -> DeliveryDetails:
    delivery = one.delivery
    attempts, history, acts = await _log_of(visit, delivery, endpoint)
    sending = await sending_of(visit, delivery, endpoint, event, history, acts)
    shown = attempts[-ATTEMPTS_SHOWN:]
    life = Life(
        delivery=delivery,
        endpoint=endpoint,
        deliver_at=event.deliver_at if event else None,
        ordering_key=event.ordering_key if event else None,
        history=history,
        retries_at={one.number: one.next_retry_at for one in attempts if one.next_retry_at},
        revive_after_seconds=visit.doorstep.components.tuning.revive_after_seconds,
        endpoint_acts=acts,
    )
    return DeliveryDetails(
        delivery=delivery,
        endpoint=endpoint,
        held=one.held,
        tries=sending.tries(shown)[::-1],
        tries_before=len(attempts) - len(shown),
        history=history[-_HISTORY_SHOWN:],
        timeline=await _timeline(visit, life, Edge.of(delivery.created_at, attempts, shown), shown),
        acts=frozenset() if delivery.deleted else acts_in(delivery.state),
    )


async def tries_numbered(
    visit: PageRequest, delivery: Delivery, event: Event | None, number: str
) -> list[ShownAttempt]:
    """The attempt of this number. There may be two: one that came too late has the number of its successor."""
    endpoint = await visit.doorstep.components.reader.endpoint(visit.org_id, delivery.endpoint_id)
    attempts, history, acts = await _log_of(visit, delivery, endpoint)
    sending = await sending_of(visit, delivery, endpoint, event, history, acts)
    return sending.tries([one for one in attempts if str(one.number) == number])


def acts_in(state: DeliveryState) -> frozenset[ActionKind]:
    return frozenset(kind for kind, states in ACTS_ON.items() if state in states)


class _Log(NamedTuple):
    attempts: list[Attempt]
    history: list[HistoryLine]
    endpoint_acts: Sequence[AuditEntry]
    """What was done to its endpoint, the newest first; the latest of it."""


async def _log_of(visit: PageRequest, delivery: Delivery, endpoint: Endpoint) -> _Log:
    doorstep, org_id = visit.doorstep, visit.org_id
    attempts = await doorstep.components.reader.attempts(org_id, delivery.delivery_id)
    history = await doorstep.components.reader.history(org_id, delivery.delivery_id)
    if endpoint.updated_at <= delivery.created_at:  # nothing was done to it since: what is from before has no say
        return _Log(attempts, history, ())
    acts = await doorstep.components.reader.audit(org_id, None, None, None, _ENDPOINT_ACTS_MAX, [endpoint.endpoint_id])
    return _Log(attempts, history, acts.items)


async def _timeline(visit: PageRequest, life: Life, edge: Edge, shown: Sequence[Attempt]) -> Timeline:
    delivery, now = life.delivery, visit.now
    waits = waits_of(life, now)
    if any(wait.kind != PLANNED for wait in waits):  # the circuit is asked only if something held it
        changes = await visit.doorstep.components.store.circuit_history(delivery.endpoint_id, _CIRCUIT_CHANGES_MAX)
        waits = waits_of(life._replace(circuit_changes=changes), now)
    running = delivery.claimed_at if delivery.state is DeliveryState.IN_PROGRESS else None
    return timeline(edge, waits, shown, running, now)
