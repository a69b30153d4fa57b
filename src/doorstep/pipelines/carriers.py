"""Carriers: the endpoints whose deliveries carry the entities of a pipeline on, and what became of one of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from doorstep.model.attempt import Code
from doorstep.model.delivery import DEAD_STATES, OPEN_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.entity import Entity
from doorstep.pipelines.moves import Trouble
from doorstep.stores.store import Store

_WORDS = {
    DeliveryState.CANCELLED: "An operator cancelled it.",
    DeliveryState.RESOLVED: "An operator said that its stage need not be tried again.",
}
_UNTOLD: frozenset[str] = frozenset({Code.TIMEOUT, Code.HANDLER_CRASHED, Code.WORKER_LOST})
_LOST = "Nothing is left that would carry it on: its event was deleted, or no endpoint took it."


class Fate(NamedTuple):
    """What has become of the event that an entity waits for."""

    trouble: Trouble | None
    """Why nobody will try the entity's stage any more; None if somebody will."""
    setback: Trouble | None
    """Why the last try of its stage failed, while it waits for the next; None if none failed, or one has begun."""


class Carriers:
    """A carrier's handler is named like the events it takes, `<pipeline>.<stage>`; earlier declarations' are so, too.

    Others may take the same events, and be called nearly so: what becomes of theirs says nothing about the entity.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = -1
        self._endpoints: Sequence[Endpoint] = ()
        self.untold: frozenset[str] = _UNTOLD
        """Codes of failures that a stage cannot write on its entity itself, and what code maps make of them."""

    async def endpoints_of(self, org_id: UUID, pipeline: str) -> list[UUID]:
        """Read again only when endpoints have changed."""
        if await self._store.routing_version() != self._version:
            routing = await self._store.routing()
            self._version, self._endpoints = routing.version, routing.endpoints
            renamed = (one.code_map.get(code, code) for one in self._endpoints if _is_carrier(one) for code in _UNTOLD)
            self.untold = _UNTOLD.union(renamed)
        return [one.endpoint_id for one in self._endpoints if one.org_id == org_id and _is_of(pipeline, one)]

    async def fate_of(self, entity: Entity) -> Fate:
        """As its deliveries stand at one moment."""
        carrying = await self._deliveries_of(entity)
        return Fate(_trouble_in(carrying), _setback_in(carrying))

    async def _deliveries_of(self, entity: Entity) -> list[Delivery]:
        if entity.event_id is None:
            return []
        owed = await self._store.deliveries(entity.org_id, entity.event_id)
        targets = [await self._store.endpoint(entity.org_id, one.endpoint_id) for one in owed]
        return [one for one, target in zip(owed, targets, strict=True) if target.handler == one.event_type]


def _is_of(pipeline: str, endpoint: Endpoint) -> bool:
    return _is_carrier(endpoint) and (endpoint.handler or "").startswith(f"{pipeline}.")


def _is_carrier(endpoint: Endpoint) -> bool:
    return endpoint.handler in endpoint.event_types


def _trouble_in(carrying: Sequence[Delivery]) -> Trouble | None:
    if any(delivery.state in OPEN_STATES for delivery in carrying):
        return None
    if not carrying:
        return Trouble(_LOST, "permanent", "LOST", 0)
    return _trouble(next((one for one in carrying if one.state in DEAD_STATES), carrying[-1]))


def _setback_in(carrying: Sequence[Delivery]) -> Trouble | None:
    waiting = (one for one in carrying if one.state is DeliveryState.PENDING and one.code is not None)
    return next(map(_trouble_of, waiting), None)


def _trouble(delivery: Delivery) -> Trouble:
    if delivery.state in DEAD_STATES:
        return _trouble_of(delivery)
    words = _WORDS.get(delivery.state, _LOST)
    return Trouble(words, "permanent", delivery.state.value.upper(), delivery.attempt)


def _trouble_of(delivery: Delivery) -> Trouble:
    """What the delivery itself says about its last failure."""
    return Trouble(delivery.reason or delivery.code or _LOST, delivery.category, delivery.code, delivery.attempt)
