"""Everything that is known of one delivery, put together for a page: attempts, waits, history, and who gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.console.curl import curl_command
from doorstep.console.scale import Bar
from doorstep.console.timeline import Timeline, outcome_of, parts, timeline, tone_of
from doorstep.console.visit import Visit
from doorstep.console.waiting import PLANNED, Life, waits_of
from doorstep.model.act import ACTS_ON, ActKind
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event
from doorstep.model.outcome import Code
from doorstep.path.attempt import enveloped
from doorstep.path.reading import Described
from doorstep.stores.notes import EDITED

ATTEMPTS_SHOWN = 30
_HISTORY_SHOWN = 100
_CIRCUIT_CHANGES_MAX = 500
_ENDPOINT_ACTS_MAX = 100


class Try(NamedTuple):
    """One line of the attempt log."""

    attempt: Attempt
    outcome: str
    tone: str
    parts: tuple[Bar, ...]
    url: str | None
    """Where it went; None for a Python handler."""
    body: bytes | None
    """What was sent; None where it is no longer kept."""

    @property
    def unsent(self) -> str:
        """What is said where no request can be shown."""
        unknown = self.attempt.code in (Code.WORKER_LOST, Code.ENDPOINT_DELETED)
        return "Whether anything was sent is not known." if unknown else "Nothing was sent."

    @property
    def lasted(self) -> Instant:
        return self.attempt.finished_at - self.attempt.started_at

    def curl(self, bytes_max: int | None = None) -> str | None:
        """The request as a command; None where it is not known, or would be of more bytes than somebody wants to see.
        It is made when it is asked for: a page with hundreds of attempts is made again every other second."""
        headers = self.attempt.request_headers
        if self.url is None or self.body is None or not self.attempt.was_sent:
            return None
        if bytes_max is not None and len(headers) + len(self.body) > bytes_max:
            return None
        return curl_command(self.url, headers, self.body, f"{self.attempt.delivery_id}.json")


class Dossier(NamedTuple):
    delivery: Delivery
    endpoint: Endpoint
    held: str | None
    tries: list[Try]
    """The newest of them, the newest first."""
    tries_before: int
    """How many older ones there are."""
    history: list[HistoryLine]
    timeline: Timeline
    acts: frozenset[ActKind]
    """What its state allows."""


async def dossier_of(visit: Visit, delivery: Delivery, event: Event | None) -> Dossier:
    return (await dossiers_of(visit, [delivery], event))[0]


async def dossiers_of(visit: Visit, deliveries: Sequence[Delivery], event: Event | None) -> list[Dossier]:
    """`event` is None where it was deleted: what is kept of its deliveries can be seen all the same."""
    store, reading, ids = visit.doorstep.store, visit.doorstep.reading, [one.endpoint_id for one in deliveries]
    endpoints = {one.endpoint_id: one for one in await store.these_endpoints(visit.org_id, ids)}
    described = await reading.described(visit.org_id, deliveries)
    return await asyncio.gather(*(_dossier(visit, one, endpoints[key], event) for one, key in zip(described, ids)))


async def _dossier(visit: Visit, one: Described, endpoint: Endpoint, event: Event | None) -> Dossier:
    doorstep, org_id, delivery = visit.doorstep, visit.org_id, one.delivery
    attempts = await doorstep.attempts(org_id, delivery.delivery_id)
    history = await doorstep.history(org_id, delivery.delivery_id)
    bodies = await _bodies(visit, delivery, endpoint, event, history)
    return Dossier(
        delivery=delivery,
        endpoint=endpoint,
        held=one.held,
        tries=_tries(attempts[-ATTEMPTS_SHOWN:], endpoint, bodies)[::-1],
        tries_before=max(0, len(attempts) - ATTEMPTS_SHOWN),
        history=history[-_HISTORY_SHOWN:],
        timeline=await _timeline(visit, delivery, endpoint, event, history, attempts[-ATTEMPTS_SHOWN:]),
        acts=frozenset() if delivery.deleted else acts_in(delivery.state),
    )


async def tries_numbered(visit: Visit, delivery: Delivery, event: Event | None, number: str) -> list[Try]:
    """The attempt of this number. There may be two: one that came too late has the number of its successor."""
    doorstep, org_id = visit.doorstep, visit.org_id
    attempts = [one for one in await doorstep.attempts(org_id, delivery.delivery_id) if str(one.number) == number]
    endpoint = await doorstep.endpoint(org_id, delivery.endpoint_id)
    history = await doorstep.history(org_id, delivery.delivery_id)
    return _tries(attempts, endpoint, await _bodies(visit, delivery, endpoint, event, history))


def acts_in(state: DeliveryState) -> frozenset[ActKind]:
    return frozenset(kind for kind, states in ACTS_ON.items() if state in states)


# -- how it waited -----------------------------------------------------------------------------------------


async def _timeline(
    visit: Visit,
    delivery: Delivery,
    endpoint: Endpoint,
    event: Event | None,
    history: Sequence[HistoryLine],
    attempts: Sequence[Attempt],
) -> Timeline:
    life = Life(
        delivery=delivery,
        endpoint=endpoint,
        deliver_at=event.deliver_at if event else None,
        ordering_key=event.ordering_key if event else None,
        history=history,
        attempts=attempts,
        revive_after_seconds=visit.doorstep.tuning.revive_after_seconds,
    )
    now = visit.now
    waits = waits_of(life, now)
    if any(wait.kind != PLANNED for wait in waits):  # what held it is asked only if something did
        waits = waits_of(await _with_holds(visit, life), now)
    running = delivery.claimed_at if delivery.state is DeliveryState.IN_PROGRESS else None
    return timeline(delivery.created_at, waits, attempts, running, now)


async def _with_holds(visit: Visit, life: Life) -> Life:
    """When its endpoint was left alone, as far as one look at the circuit's history and at the audit goes back."""
    endpoint_id, doorstep = life.endpoint.endpoint_id, visit.doorstep
    changes = await doorstep.store.circuit_history(endpoint_id, _CIRCUIT_CHANGES_MAX)
    acts = await doorstep.reading.audit(visit.org_id, None, None, None, _ENDPOINT_ACTS_MAX, [endpoint_id])
    return life._replace(circuit_changes=changes, endpoint_acts=acts.items)


# -- what was sent -----------------------------------------------------------------------------------------


class _Bodies(NamedTuple):
    """What went out when: the event's payload, until an operator gave another one."""

    first: bytes | None
    present: bytes | None
    edited_at: tuple[Instant, ...]

    def sent_at(self, at: Instant) -> bytes | None:
        if not self.edited_at or at < self.edited_at[0]:
            return self.first
        return self.present if at >= self.edited_at[-1] else None


async def _bodies(
    visit: Visit, delivery: Delivery, endpoint: Endpoint, event: Event | None, history: Sequence[HistoryLine]
) -> _Bodies:
    if event is None:
        return _Bodies(None, None, ())
    own = await visit.doorstep.store.payload(visit.org_id, delivery.delivery_id) if delivery.edited else event.payload
    first, present = (_on_the_wire(endpoint, event, payload) for payload in (event.payload, own))
    return _Bodies(first, present, tuple(line.at for line in history if line.note.startswith(EDITED)))


def _on_the_wire(endpoint: Endpoint, event: Event, payload: bytes) -> bytes:
    return enveloped(event.event_type, event.created_at, payload) if endpoint.envelope else payload


def _tries(attempts: Sequence[Attempt], endpoint: Endpoint, bodies: _Bodies) -> list[Try]:
    longest = max((one.finished_at - one.started_at for one in attempts), default=0)
    return [_try(one, endpoint, bodies.sent_at(one.started_at), longest) for one in attempts]


def _try(attempt: Attempt, endpoint: Endpoint, body: bytes | None, longest: Instant) -> Try:
    return Try(attempt, outcome_of(attempt), tone_of(attempt), parts(attempt, longest), endpoint.url, body)
