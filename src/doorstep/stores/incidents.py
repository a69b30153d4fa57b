"""The incidents that stores write with what they change, in the same transaction: worded once for all of them."""

from __future__ import annotations

from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.incident import Incident, IncidentKind, circuit_incident, endpoint_incident
from doorstep.model.settlement import Settlement
from doorstep.stores.deaths import cause_in
from doorstep.stores.text import storable

_REASON_CHARACTERS_MAX = 1_000
"""A message has room for a sentence, not for a page."""


def death_in(settlement: Settlement, now: Instant) -> Incident | None:
    """What a settlement that makes a dead letter leaves behind; None where it does not."""
    if settlement.state is not DeliveryState.DEAD:
        return None
    claim, outcome = settlement.claim, settlement.outcome
    return Incident(
        kind=IncidentKind.DELIVERY_DEAD,
        org_id=claim.org_id,
        endpoint_id=claim.endpoint_id,
        at=now,
        code=storable(outcome.code or ""),
        reason=storable(outcome.reason)[:_REASON_CHARACTERS_MAX],
        delivery_id=claim.delivery_id,
        event_id=claim.event_id,
        event_type=claim.event_type,
        attempts=claim.attempt,
        cause=cause_in(settlement),
    )


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


def document_of(incident: Incident) -> str:
    return msgspec.json.encode(incident).decode()


def cut(reason: str) -> str:
    """As much of a reason as an incident keeps."""
    return reason[:_REASON_CHARACTERS_MAX]
