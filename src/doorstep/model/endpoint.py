"""Endpoints: their destinations, retry policies, targets and circuits."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from doorstep.clock import SECOND, Instant
from doorstep.model.record import Record


class EndpointState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """An operator paused it; its deliveries are held."""
    DISABLED = "disabled"
    """Doorstep disabled it (410 Gone, or days of failures); its deliveries are held."""
    DELETED = "deleted"
    """Its waiting deliveries become dead letters."""


class SigningSecret(Record, frozen=True):
    """One encrypted signing key. The store never sees the plain key."""

    sealed: bytes
    scheme: str = "v1"
    """`v1` is HMAC-SHA256 with a shared secret; `v1a` is Ed25519 with a private key."""
    expires_at: Instant | None = None
    """Set on rotation. Until this time, requests are signed with both the old and the new secret."""
    public_key: str = ""
    """`v1a`: the key that receivers verify with. It is not secret."""


class CircuitRules(Record, frozen=True):
    """When the circuit of an endpoint opens, how often it is probed, and when the endpoint is disabled."""

    failures_max: int = 5
    open_seconds: float = 300
    """The longest pause before a probe."""
    disable_after_seconds: float = 5 * 86_400
    probe_seconds_min: float = 1
    """The shortest pause before a probe. The pause is a quarter of the outage so far, within these bounds."""
    enabled: bool = True
    """Whether the circuit may open at all."""


class DestinationKind(Record, frozen=True, tag_field="kind"):
    """The base of all kinds of destination. The engine passes each kind to the transport of the same name."""

    signed: ClassVar[bool] = False
    """Whether attempts are signed and use the endpoint's headers and envelope."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def target(self) -> str:
        """The part that distinguishes destinations of one kind: the first field, or empty if there is none."""
        fields = self.__struct_fields__
        return str(getattr(self, fields[0])) if fields else ""

    @property
    def description(self) -> str:
        """The destination as text for people."""
        return f"{self.kind} {self.target}".rstrip()


class HttpDestination(DestinationKind, frozen=True, tag="http"):
    """A URL that receives HTTP requests."""

    signed: ClassVar[bool] = True
    url: str

    @property
    def description(self) -> str:
        return self.url


class HandlerDestination(DestinationKind, frozen=True, tag="handler"):
    """A Python function that workers have registered under a name."""

    name: str


class LogDestination(DestinationKind, frozen=True, tag="log"):
    """The log of the worker that makes the attempt."""


Destination = HttpDestination | HandlerDestination | LogDestination


class EndpointSettings(Record, frozen=True, kw_only=True):
    """The settings of an endpoint that are stored exactly as its owner entered them."""

    name: str
    description: str = ""
    """The purpose of the endpoint, shown to people."""
    event_types: tuple[str, ...] = ("*",)
    """Exact names, or patterns whose final `*` matches any ending: `user.*`."""
    timeout_seconds: float | None = None
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    retry_on: tuple[str, ...] = ()
    """Codes or HTTP statuses to retry even if they are permanent by default; `*` retries everything."""
    give_up_on: tuple[str, ...] = ()
    circuit: CircuitRules = CircuitRules()
    slo: Slo | None = None
    """The endpoint's own target. If None, the target of its organization applies."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as `data`, instead of the payload alone."""
    batch: bool = False
    """Its events are batches (model/batch.py), which are listed by status and can be resubmitted."""


class Endpoint(EndpointSettings, frozen=True, kw_only=True):
    endpoint_id: UUID
    org_id: UUID
    created_at: Instant
    destination: Destination
    policy: RetryPolicy | None = None
    policy_by_event_type: dict[str, RetryPolicy] = {}
    sealed_headers: bytes = b""
    """Extra request headers, encrypted because they may contain credentials; empty if there are none."""
    code_map: dict[str, str] = {}
    """Maps the carrier's own codes or HTTP statuses to Doorstep's codes."""
    declared: str = ""
    """For an endpoint declared in code: a digest of the last declaration that was written."""
    secrets: tuple[SigningSecret, ...] = ()
    state: EndpointState = EndpointState.ACTIVE
    state_reason: str = ""
    state_since: Instant = 0
    """When the state last changed; 0 if never. If the endpoint is active, its deliveries were held before this time."""
    drain_per_second: float | None = None
    """The rate limit for deliveries that were due before `drain_before`, while a backlog is drained."""
    drain_before: Instant | None = None
    updated_at: Instant = 0
    version: int = 0
    """Increases with every write, from 1; a write states the version it was computed from."""

    @property
    def url(self) -> str | None:
        return self.destination.url if isinstance(self.destination, HttpDestination) else None

    @property
    def handler(self) -> str | None:
        return self.destination.name if isinstance(self.destination, HandlerDestination) else None

    @property
    def signing_secret(self) -> SigningSecret | None:
        """The current secret, which has no expiry time. Rotation sets an expiry time on the secret that it replaces."""
        return next((secret for secret in self.secrets if secret.expires_at is None), None)


class RetryPolicy(Record, frozen=True):
    """`delays[n]` is the delay in seconds before retry n + 1. With three delays there are up to four attempts."""

    delays: tuple[float, ...]
    jitter: float = 0.1
    """Each delay varies randomly by up to this share, so that a recovered receiver does not get all retries at the same
    time."""
    deadline_seconds: float | None = None
    """No retry starts more than this many seconds after the event was accepted, or after its `deliver_at`."""
    name: str = ""
    retry_on_recovery: bool = False
    """Whether retries are brought forward when the circuit of the endpoint closes, and failed probes use up none."""
    manual: bool = False
    """When no retry is left, the delivery waits for an operator instead of becoming a dead letter."""
    ignore_retry_after: bool = False
    """Whether the delays apply even if a receiver asks for another one with `Retry-After`."""


class Slo(Record, frozen=True, kw_only=True):
    """The service level objective of an endpoint. It can be set for the endpoint or for its organization; the values
    below are the defaults."""

    success: float = 0.99
    """The share of deliveries that must succeed instead of becoming dead letters."""
    p95_seconds: float = 60.0
    """The time within which 95 % of the successful deliveries must arrive. It is counted from the acceptance of the
    event, or from `deliver_at` if that is later."""
    oldest_seconds: float = 3_600.0
    """The maximum age of the oldest waiting delivery, counted from the acceptance of the event, or from `deliver_at` if
    that is later."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


RAMP: Instant = 5 * SECOND // 2
"""How long the number of concurrent attempts stays limited after a circuit has closed; see policy/circuit.py."""


class Circuit(Record, frozen=True, kw_only=True):
    """The circuit breaker of an endpoint. If none is stored, the circuit is closed and has no failures."""

    endpoint_id: UUID
    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    """Consecutive failures of the endpoint."""
    failing_since: Instant | None = None
    """The time of the first failure after the last success."""
    changed_at: Instant = 0
    until: Instant | None = None
    """If open: when a probe may start. If half-open: when the probe counts as lost and another may start. If closed
    with failures: the time of the last failure."""
    version: int = 0
    """Increases with every write; a write states the version it was computed from."""


class CircuitChange(Record, frozen=True):
    """One entry in the history of a circuit."""

    at: Instant
    old_state: CircuitState
    new_state: CircuitState
    reason: str
