"""An endpoint: a receiver, reached by URL or as a Python handler."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.record import Record


class EndpointState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """An operator stopped it; its deliveries are held."""
    DISABLED = "disabled"
    """The machine stopped it (gone, or failing for days); its deliveries are held."""
    DELETED = "deleted"
    """Its waiting deliveries become dead letters."""


class SigningSecret(Record, frozen=True):
    """One signing key, sealed: the store never sees it in the clear."""

    sealed: bytes
    scheme: str = "v1"
    """`v1` is HMAC-SHA256 with a shared secret, `v1a` Ed25519 with a private key."""
    expires_at: Instant | None = None
    """Set on rotation: until then both the old and the new secret sign."""
    public_key: str = ""
    """`v1a`: what receivers verify with. It is no secret, and can be shown at any time."""


class CircuitRules(Record, frozen=True):
    """When the circuit of an endpoint opens, for how long, and when the endpoint is disabled."""

    failures_max: int = 5
    open_seconds: float = 300
    disable_after_seconds: float = 5 * 86_400


class Routing(Record, frozen=True):
    """All endpoints that are not deleted, and the version that an accept must name to use this picture."""

    version: int
    endpoints: tuple[Endpoint, ...]


class Endpoint(Record, frozen=True, kw_only=True):
    endpoint_id: UUID
    org_id: UUID
    name: str
    created_at: Instant
    description: str = ""
    """What it is for, in the words of those who look after it."""
    url: str | None = None
    handler: str | None = None
    event_types: tuple[str, ...] = ("*",)
    """Exact names, or patterns where a final `*` stands for any rest: `user.*`."""
    policy: RetryPolicy | None = None
    policy_by_event_type: dict[str, RetryPolicy] = {}
    timeout_seconds: float | None = None
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    sealed_headers: bytes = b""
    """Extra request headers (they may hold credentials), sealed like the secrets; empty when there are none."""
    retry_on: tuple[str, ...] = ()
    """Codes or HTTP statuses to retry although they are permanent; `*` retries everything."""
    give_up_on: tuple[str, ...] = ()
    code_map: dict[str, str] = {}
    """Translates a carrier's own codes into ours."""
    circuit: CircuitRules = CircuitRules()
    slo: Slo | None = None
    """Its own target, if it has one; else that of its organization counts."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as data, instead of the payload alone."""
    batch: bool = False
    """What goes to it are batches (model/batch.py): they can be found by status, and resubmitted."""
    declared: str = ""
    """Of one that a program declares in its code: what it said, in brief, when that was last written here."""
    secrets: tuple[SigningSecret, ...] = ()
    state: EndpointState = EndpointState.ACTIVE
    state_reason: str = ""
    state_since: Instant = 0
    """When it last came into another state; 0 if it never did. Its deliveries were held before, if it is active now."""
    drain_per_second: float | None = None
    """While a backlog is drained at a given rate: that rate, until `drain_before` is reached."""
    drain_before: Instant | None = None
    updated_at: Instant = 0
    version: int = 0
    """Grows with every write, from 1; a write names the version it was computed from."""

    @property
    def signing_secret(self) -> SigningSecret | None:
        """The one that stays: those that rotation has replaced have an end."""
        return next((secret for secret in self.secrets if secret.expires_at is None), None)


class RetryPolicy(Record, frozen=True):
    """`delays[n]` is the pause in seconds before retry n + 1: three delays mean up to four attempts."""

    delays: tuple[float, ...]
    jitter: float = 0.1
    """Each delay is varied by up to this share, so that a recovered receiver is not stampeded."""
    deadline_seconds: float | None = None
    """No retry starts later than this after the event was owed: accepted, or due by its `deliver_at`."""
    name: str = ""


class Slo(Record, frozen=True, kw_only=True):
    """The target of an endpoint: its own, else its organization's, else this one."""

    success: float = 0.99
    """The share of deliveries that are to arrive, rather than to end as dead letters."""
    p95_seconds: float = 60.0
    """How soon 95 % of those that arrive are to have done so, from when they were owed."""
    oldest_seconds: float = 3_600.0
    """How long the oldest of what has not arrived yet may have been owed."""
