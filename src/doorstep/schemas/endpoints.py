"""Endpoints: what can be set of them, how they are shown, their policies, circuits and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Required, TypeAlias, TypedDict
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from doorstep.schemas.shape import Answer, Listing, ListQuery, Pagination, Request, Time, choice, told

EndpointStateName: TypeAlias = Annotated[str, choice("active", "paused", "disabled", "deleted")]
CircuitStateName: TypeAlias = Literal["closed", "open", "half_open"]
Signing: TypeAlias = Literal["v1", "v1a"]
POLICY_NAMES = ("carrier", "immediate", "manual", "patient", "pipeline", "quick", "standard")

NAME_CHARACTERS_MAX = 200
TYPES_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}\*?|\*)$"
HEADER_NAME_PATTERN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"
CODE_PATTERN = r"^[ -~]{1,100}$"


class Bounds(tuple[float, float]):
    """The least and the greatest that a number may be."""

    @property
    def rule(self) -> Any:
        low, high = self
        return told(minimum=low) if high == float("inf") else told(minimum=low, maximum=high)


DELAY_SECONDS = Bounds((0, 30 * 86_400))
JITTER = Bounds((0, 1))
DEADLINE_SECONDS = Bounds((0, 366 * 86_400))
TIMEOUT_SECONDS = Bounds((0.1, float("inf")))
"""Its greatest is the operator's to say: the setting `timeout_seconds_max`."""
CONCURRENCY = Bounds((1, 10_000))
RATE = Bounds((0.001, 100_000))
FAILURES = Bounds((1, 1_000_000))
OPEN_SECONDS = Bounds((1, 86_400))
DISABLE_AFTER_SECONDS = Bounds((60, 365 * 86_400))
OVERLAP_SECONDS = Bounds((0, 30 * 86_400))
SUCCESS = Bounds((0.5, 0.99999))
P95_SECONDS = Bounds((0.001, 259_200))
OLDEST_SECONDS = Bounds((1, 30 * 86_400))

Name: TypeAlias = Annotated[str, told(minLength=1, maxLength=NAME_CHARACTERS_MAX)]
Code: TypeAlias = Annotated[str, told(pattern=CODE_PATTERN)]
EventTypes: TypeAlias = Annotated[
    tuple[Annotated[str, told(pattern=TYPES_PATTERN)], ...], Meta(max_length=1_000, extra_json_schema={"minItems": 1})
]
Codes: TypeAlias = Annotated[tuple[Code, ...], Meta(max_length=100)]
CodeMap: TypeAlias = Annotated[
    dict[str, Code], Meta(max_length=1_000, extra_json_schema={"propertyNames": {"pattern": CODE_PATTERN}})
]
Headers: TypeAlias = Annotated[
    dict[str, Annotated[str, told(pattern="^[ -~]{0,4000}$")]],
    Meta(max_length=100, extra_json_schema={"propertyNames": {"pattern": HEADER_NAME_PATTERN}}),
]
Delays: TypeAlias = Annotated[tuple[Annotated[float, DELAY_SECONDS.rule], ...], Meta(max_length=100)]
Rate: TypeAlias = Annotated[float, RATE.rule]

# -- parts of an endpoint ----------------------------------------------------------------------------------------


class Policy(Answer, frozen=True):
    """When to try again: the pauses in seconds, how much they vary, and after how long to give up altogether."""

    delays: Delays
    jitter: Annotated[float, JITTER.rule] = 0.1
    deadline_seconds: Annotated[float, DEADLINE_SECONDS.rule] | None = None
    name: Annotated[str, told(maxLength=NAME_CHARACTERS_MAX)] = ""


class PolicyIn(Policy, frozen=True, forbid_unknown_fields=True):
    """The same, as it is given."""


class CircuitRules(Answer, frozen=True):
    """After how many failures in a row it opens, for how long, and after how long the endpoint is disabled."""

    failures_max: Annotated[int, FAILURES.rule] = 5
    open_seconds: Annotated[float, OPEN_SECONDS.rule] = 300.0
    disable_after_seconds: Annotated[float, DISABLE_AFTER_SECONDS.rule] = 432_000.0


class CircuitRulesIn(CircuitRules, frozen=True, forbid_unknown_fields=True):
    """The same, as they are given."""


class Slo(Answer, frozen=True):
    """What share of the deliveries is to arrive, how soon 95 % of those are to have done so, and how long the oldest of what
    still waits may have waited."""

    success: Annotated[float, SUCCESS.rule] = 0.99
    p95_seconds: Annotated[float, P95_SECONDS.rule] = 60.0
    oldest_seconds: Annotated[float, OLDEST_SECONDS.rule] = 3_600.0


class SloIn(Slo, frozen=True, forbid_unknown_fields=True):
    """The same, as it is given."""


PolicyForm: TypeAlias = Annotated[
    Annotated[str, told(enum=list(POLICY_NAMES))] | Delays | PolicyIn,
    Meta(extra={"expected": "the name of a policy, a list of delays in seconds, or an object"}),
]
"""A policy's name, its delays in seconds, or all of it."""
Policies: TypeAlias = Annotated[
    dict[str, PolicyForm], Meta(max_length=100, extra_json_schema={"propertyNames": {"pattern": TYPES_PATTERN}})
]

# -- requests ----------------------------------------------------------------------------------------------------


class EndpointIn(Request, frozen=True, kw_only=True):
    """A receiver: a URL, or the name of a Python handler that workers have registered."""

    name: Name
    url: str | None = None
    handler: Name | None = None
    event_types: EventTypes = ("*",)
    policy: PolicyForm | None = None
    """A policy's name, its delays in seconds, or all of it."""
    policy_by_event_type: Policies = {}
    """For some event types (`order.paid`, `order.*`) another one; the most specific counts."""
    timeout_seconds: Annotated[float, TIMEOUT_SECONDS.rule] | None = None
    concurrency_max: Annotated[int, CONCURRENCY.rule] | None = None
    rate_per_second: Rate | None = None
    headers: Headers = {}
    retry_on: Codes = ()
    give_up_on: Codes = ()
    code_map: CodeMap = {}
    circuit: CircuitRulesIn = CircuitRulesIn()
    slo: SloIn | None = None
    """Its own target; without one that of the organization counts, see `PUT /v1/slo/default`."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as data, instead of the payload alone."""
    batch: bool = False
    """What goes to it are batches: `/v1/batches` finds them by status and resubmits them."""
    signing: Signing = "v1"
    """`v1`: HMAC-SHA256 with a shared secret; `v1a`: Ed25519, of which the receiver has the public key."""


class EndpointPatch(Request, frozen=True, kw_only=True):
    """What is to change. A field that is left out stays as it is; null puts it back to its default."""

    name: Name | UnsetType = UNSET
    """Cannot be put back to a default: it has none."""
    url: str | None | UnsetType = UNSET
    handler: Name | None | UnsetType = UNSET
    event_types: EventTypes | None | UnsetType = UNSET
    policy: PolicyForm | None | UnsetType = UNSET
    policy_by_event_type: Policies | None | UnsetType = UNSET
    timeout_seconds: Annotated[float, TIMEOUT_SECONDS.rule] | None | UnsetType = UNSET
    concurrency_max: Annotated[int, CONCURRENCY.rule] | None | UnsetType = UNSET
    rate_per_second: Rate | None | UnsetType = UNSET
    headers: Headers | None | UnsetType = UNSET
    retry_on: Codes | None | UnsetType = UNSET
    give_up_on: Codes | None | UnsetType = UNSET
    code_map: CodeMap | None | UnsetType = UNSET
    circuit: CircuitRulesIn | None | UnsetType = UNSET
    slo: SloIn | None | UnsetType = UNSET
    envelope: bool | None | UnsetType = UNSET
    batch: bool | None | UnsetType = UNSET
    version: int | None = None
    """The version that the change was made for: if it is no longer the newest, the answer is a 409."""


class EndpointFields(TypedDict, total=False):
    """What can be set of an endpoint, and changed, as keyword arguments of the client."""

    url: str | None
    handler: str | None
    event_types: Sequence[str] | None
    policy: str | Sequence[float] | Mapping[str, Any] | None
    policy_by_event_type: Mapping[str, str | Sequence[float] | Mapping[str, Any]] | None
    timeout_seconds: float | None
    concurrency_max: int | None
    rate_per_second: float | None
    headers: Mapping[str, str] | None
    retry_on: Sequence[str] | None
    give_up_on: Sequence[str] | None
    code_map: Mapping[str, str] | None
    circuit: Mapping[str, Any] | None
    slo: Mapping[str, float] | None
    envelope: bool | None
    batch: bool | None


class NewEndpointFields(EndpointFields, total=False):
    """What a new endpoint is given."""

    name: Required[str]
    signing: Signing


class ChangedFields(EndpointFields, total=False):
    """What is to change. None resets a field to its default; with `version` only if nobody changed it since."""

    name: str
    version: int


class EndpointsQuery(ListQuery, frozen=True, kw_only=True):
    """Which endpoints."""

    state: Literal["active", "paused", "disabled"] | None = None


class ResumeIn(Request, frozen=True):
    """How what has waited meanwhile is to go: at once, at a rate, or without what is too old."""

    drain_per_second: Rate | None = None
    skip_older_than: Time | None = None
    """What was accepted before this time becomes dead letters."""


class RotateIn(Request, frozen=True):
    """How the secret is changed."""

    overlap_seconds: Annotated[float, OVERLAP_SECONDS.rule] = 86_400.0
    """For how long the old secret goes on signing beside the new one; at most 30 days."""
    signing: Signing | None = None
    """To change the kind of signature with it."""


# -- answers -----------------------------------------------------------------------------------------------------


class Endpoint(Answer, frozen=True):
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
    slo: Slo | None
    """Its own target; without one that of its organization counts."""
    envelope: bool
    batch: bool
    signing: Signing
    public_key: str | None
    """`v1a`: what receivers verify with."""
    state: EndpointStateName
    state_reason: str
    created_at: Time
    updated_at: Time
    version: int
    """Grows with every change."""


class NewEndpoint(Endpoint, frozen=True):
    """The answer to its creation: the only one that holds the signing secret (with `v1a`, the public key)."""

    secret: str


class EndpointPage(Listing[Endpoint], frozen=True):
    """One page of the endpoints."""

    endpoints: tuple[Endpoint, ...]
    pagination: Pagination


class RotatedSecret(Answer, frozen=True):
    """The new signing secret (with `v1a`, the public key), shown this once. The old one signs beside it until it expires."""

    endpoint_id: UUID
    secret: str
    old_secret_expires_at: Time | None


class CircuitChange(Answer, frozen=True):
    """One change of a circuit's state."""

    at: Time
    old_state: CircuitStateName
    new_state: CircuitStateName
    reason: str


class Circuit(Answer, frozen=True):
    """What is remembered of an endpoint's failures. While it is open, its deliveries wait and use up no attempts."""

    endpoint_id: UUID
    state: CircuitStateName
    failures: int
    """In a row, up to now."""
    failing_since: Time | None
    until: Time | None
    """Open: when one delivery may go as a probe. Half-open: when the probe counts as lost."""
    history: tuple[CircuitChange, ...]
