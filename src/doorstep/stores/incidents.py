"""The incidents that stores write with what they change, in the same transaction: worded once for all of them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.model.alert import (
    AlertConfig,
    Channel,
    ChannelTests,
    Incident,
    IncidentKind,
    circuit_incident,
    endpoint_incident,
)
from doorstep.model.circuit import Circuit
from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.stores.deaths import cause_in
from doorstep.stores.text import storable

_REASON_CHARACTERS_MAX = 1_000
"""A message has room for a sentence, not for a page."""


class Dying(Protocol):
    """What a death needs to know of a delivery, whatever a store has in its hands: a claim, a delivery, a row."""

    @property
    def org_id(self) -> UUID: ...
    @property
    def endpoint_id(self) -> UUID: ...
    @property
    def delivery_id(self) -> UUID: ...
    @property
    def event_id(self) -> UUID: ...
    @property
    def event_type(self) -> str: ...
    @property
    def attempt(self) -> int: ...


def death_of(dying: Dying, code: str, reason: str, cause: int | None, at: Instant) -> Incident:
    """What every dead letter leaves behind, in whichever way it died."""
    return Incident(
        kind=IncidentKind.DELIVERY_DEAD,
        org_id=dying.org_id,
        endpoint_id=dying.endpoint_id,
        at=at,
        code=code,
        reason=reason[:_REASON_CHARACTERS_MAX],
        delivery_id=dying.delivery_id,
        event_id=dying.event_id,
        event_type=dying.event_type,
        attempts=dying.attempt,
        cause=cause,
    )


def death_in(settlement: Settlement, now: Instant) -> Incident | None:
    """What a settlement that makes a dead letter leaves behind; None where it does not."""
    if settlement.state is not DeliveryState.DEAD:
        return None
    outcome = settlement.outcome
    code, reason = storable(outcome.code or ""), storable(outcome.reason)
    return death_of(settlement.claim, code, reason, cause_in(settlement), now)


def turn_of_circuit(old: Circuit, new: Circuit, org_id: UUID, reason: str) -> Incident | None:
    kind = circuit_incident(old.state, new.state)
    if kind is None:
        return None
    return Incident(kind=kind, org_id=org_id, endpoint_id=new.endpoint_id, at=new.changed_at, reason=reason)


def turn_of_endpoint(old: EndpointState | None, new: Endpoint) -> Incident | None:
    kind = endpoint_incident(old, new.state)
    if kind is None:
        return None
    reason = storable(new.state_reason)[:_REASON_CHARACTERS_MAX]
    return Incident(kind=kind, org_id=new.org_id, endpoint_id=new.endpoint_id, at=new.updated_at, reason=reason)


def arranged(arrangement: AlertConfig, at: Instant) -> Incident | None:
    """An organization arranged something about its alerts. Who is told of them changes nothing about what is the case."""
    if isinstance(arrangement, Channel | ChannelTests):
        return None
    return Incident(kind=IncidentKind.RULES_CHANGED, org_id=arrangement.org_id, at=at)


def document_of(incident: Incident) -> str:
    return msgspec.json.encode(incident).decode()
