"""An incident: something that went wrong or right again, written by the store with the very change that it is."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.circuit import CircuitState
from doorstep.model.endpoint import EndpointState
from doorstep.model.noun import Noun


class IncidentKind(StrEnum):
    """Most are also the types of operational events; see OPERATIONAL_KINDS."""

    DELIVERY_DEAD = "delivery.dead"
    CIRCUIT_OPENED = "circuit.opened"
    CIRCUIT_CLOSED = "circuit.closed"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_ENABLED = "endpoint.enabled"
    ENDPOINT_DELETED = "endpoint.deleted"
    ENDPOINT_PAUSED = "endpoint.paused"
    """Only of one that was disabled: that is over, though nothing works again."""
    RULES_CHANGED = "rules.changed"
    """Somebody changed a rule or a silence: what is the case may mean something else now."""


OPERATIONAL_KINDS = frozenset(IncidentKind) - {IncidentKind.ENDPOINT_PAUSED, IncidentKind.RULES_CHANGED}
"""What endpoints can subscribe to. The others are somebody's own doing."""


class Incident(Noun, frozen=True, kw_only=True, omit_defaults=True):
    """Kept until somebody has turned it into alerts and messages, which removes it in the same transaction."""

    kind: IncidentKind
    org_id: UUID
    at: Instant
    endpoint_id: UUID | None = None
    """None where it is about the whole organization."""
    code: str = ""
    reason: str = ""
    """A sentence for people: why it died, opened or was disabled."""
    delivery_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str = ""
    attempts: int = 0
    cause: int | None = None
    """Of a death: what it has in common with others (model/cause.py)."""
    key: int = 0
    """The store's own number for it, never given twice."""


def circuit_incident(old: CircuitState, new: CircuitState) -> IncidentKind | None:
    """What a change of a circuit means to people. A probe that failed opens nothing: it has been open all the time."""
    if old is CircuitState.CLOSED and new is CircuitState.OPEN:
        return IncidentKind.CIRCUIT_OPENED
    if old is not CircuitState.CLOSED and new is CircuitState.CLOSED:
        return IncidentKind.CIRCUIT_CLOSED
    return None


def endpoint_incident(old: EndpointState | None, new: EndpointState) -> IncidentKind | None:
    """What a change of an endpoint means to people. A pause is somebody's own doing: it only ends what was told."""
    if old is None or old is new:
        return None
    if new is EndpointState.DELETED:
        return IncidentKind.ENDPOINT_DELETED
    if new is EndpointState.DISABLED:
        return IncidentKind.ENDPOINT_DISABLED
    if old is not EndpointState.DISABLED:
        return None
    return IncidentKind.ENDPOINT_PAUSED if new is EndpointState.PAUSED else IncidentKind.ENDPOINT_ENABLED
