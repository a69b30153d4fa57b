"""Builds incidents. Every store writes them in the same transaction as the change that caused them."""

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
from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState, cause_of
from doorstep.model.endpoint import Circuit, Endpoint, EndpointState
from doorstep.stores.limits import storable

_REASON_CHARACTERS_MAX = 1_000
"""Longer reasons are cut off, because they do not fit in a notification."""


class DeadDelivery(Protocol):
    """The fields of a dead letter that are needed to create its incident. Claims, deliveries and Movers have these
    fields."""

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


def dead_letter_incident(delivery: DeadDelivery, code: str, reason: str, cause: int | None, at: Instant) -> Incident:
    """The incident of a delivery that became a dead letter, whether by a settlement or another change."""
    return Incident(
        kind=IncidentKind.DELIVERY_DEAD,
        org_id=delivery.org_id,
        endpoint_id=delivery.endpoint_id,
        at=at,
        code=code,
        reason=reason[:_REASON_CHARACTERS_MAX],
        delivery_id=delivery.delivery_id,
        event_id=delivery.event_id,
        event_type=delivery.event_type,
        attempts=delivery.attempt,
        cause=cause,
    )


def settlement_incident(settlement: Settlement, now: Instant) -> Incident | None:
    """The incident of a settlement that creates a dead letter; None for other settlements."""
    if settlement.state is not DeliveryState.DEAD:
        return None
    outcome = settlement.outcome
    code, reason = storable(outcome.code or ""), storable(outcome.reason)
    return dead_letter_incident(settlement.claim, code, reason, settlement_cause(settlement), now)


def settlement_cause(settlement: Settlement) -> int | None:
    """The cause of the dead letter that a settlement creates; None for other settlements. The cause is computed from
    the code and reason as they are stored."""
    if settlement.state is not DeliveryState.DEAD:
        return None
    outcome = settlement.outcome
    return cause_of(settlement.claim.endpoint_id, storable(outcome.code or ""), storable(outcome.reason))


def circuit_change_incident(old: Circuit, new: Circuit, org_id: UUID, reason: str) -> Incident | None:
    kind = circuit_incident(old.state, new.state)
    if kind is None:
        return None
    return Incident(kind=kind, org_id=org_id, endpoint_id=new.endpoint_id, at=new.changed_at, reason=reason)


def endpoint_change_incident(old: EndpointState | None, new: Endpoint) -> Incident | None:
    kind = endpoint_incident(old, new.state)
    if kind is None:
        return None
    reason = storable(new.state_reason)[:_REASON_CHARACTERS_MAX]
    return Incident(kind=kind, org_id=new.org_id, endpoint_id=new.endpoint_id, at=new.updated_at, reason=reason)


def config_change_incident(config: AlertConfig, at: Instant) -> Incident | None:
    """The incident of a changed alert rule or silence; None for channels, which do not affect which alerts are open."""
    if isinstance(config, Channel | ChannelTests):
        return None
    return Incident(kind=IncidentKind.RULES_CHANGED, org_id=config.org_id, at=at)


def encode_incident(incident: Incident) -> str:
    return msgspec.json.encode(incident).decode()
