"""Endpoints, their policies and their circuits."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from doorstep.client.answers.answer import Answered
from doorstep.client.answers.stats import Slo


class Policy(Answered, frozen=True, kw_only=True):
    """When to try again."""

    delays: tuple[float, ...]
    jitter: float = 0.1
    deadline_seconds: float | None = None
    name: str = ""


class CircuitRules(Answered, frozen=True, kw_only=True):
    """When an endpoint's circuit opens, for how long, and when the endpoint is disabled."""

    failures_max: int = 5
    open_seconds: float = 300.0
    disable_after_seconds: float = 432_000.0


class Endpoint(Answered, frozen=True, kw_only=True):
    """A receiver. Its secret and the values of its headers are never shown."""

    endpoint_id: UUID
    name: str
    url: str | None
    handler: str | None
    event_types: tuple[str, ...]
    policy: Policy | None
    policy_by_event_type: dict[str, Policy]
    timeout_seconds: float | None
    concurrency_max: int | None
    rate_per_second: float | None
    retry_on: tuple[str, ...]
    give_up_on: tuple[str, ...]
    code_map: dict[str, str]
    circuit: CircuitRules
    slo: Slo | None = None
    """Its own target; without one that of its organization counts."""
    envelope: bool
    batch: bool
    signing: Literal["v1", "v1a"]
    public_key: str | None
    """`v1a`: what receivers verify with."""
    state: str
    state_reason: str
    created_at: datetime
    updated_at: datetime
    version: int
    """Grows with every change."""


class NewEndpoint(Endpoint, frozen=True, kw_only=True):
    """The answer to its creation: the only one that holds the signing secret."""

    secret: str


class RotatedSecret(Answered, frozen=True, kw_only=True):
    """The new secret, shown this once. The old one signs beside it until it expires."""

    endpoint_id: UUID
    secret: str
    old_secret_expires_at: datetime | None


class CircuitChange(Answered, frozen=True, kw_only=True):
    """One line of a circuit's history."""

    at: datetime
    old_state: str
    new_state: str
    reason: str


class Circuit(Answered, frozen=True, kw_only=True):
    """Whether an endpoint is being tried, and what led to it."""

    endpoint_id: UUID
    state: Literal["closed", "open", "half_open"]
    failures: int
    """In a row."""
    failing_since: datetime | None
    until: datetime | None
    """When it is tried again, if it is open."""
    history: tuple[CircuitChange, ...]
