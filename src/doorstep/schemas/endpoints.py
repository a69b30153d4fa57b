"""Endpoints: their settings, destinations, policies, circuits and targets.

A new setting needs a line in `EndpointIn`, `EndpointPatch`, `EndpointFields` and `Endpoint`, and a row in the table of
inputs at the end, which defines the options of the command line and the form of the console. It also needs a line in
`model/endpoint.py` and in `operations/endpoint_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Required, TypeAlias, TypedDict, get_args
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from doorstep.schemas.shape import Answer, Listing, ListQuery, Request, Time, choice, stated

EndpointStateName: TypeAlias = Annotated[str, choice("active", "paused", "disabled", "deleted")]
CircuitStateName: TypeAlias = Literal["closed", "open", "half_open"]
ListedState: TypeAlias = Literal["active", "paused", "disabled"]
Signing: TypeAlias = Literal["v1", "v1a"]
POLICY_NAMES = (
    "carrier",
    "exponential",
    "immediate",
    "manual",
    "patient",
    "pipeline",
    "quick",
    "standard",
    "triggers",
)

NAME_CHARACTERS_MAX = 200
DESCRIPTION_CHARACTERS_MAX = 1_000
TYPES_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}\*?|\*)$"
HEADER_NAME_PATTERN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"
HEADER_VALUE_PATTERN = r"^ *[!-~][ -~]*$"
CODE_PATTERN = r"^[ -~]{1,100}$"


class Bounds(tuple[float, float]):
    """The minimum and maximum of a number."""

    @property
    def rule(self) -> Any:
        low, high = self
        return stated(minimum=low) if high == float("inf") else stated(minimum=low, maximum=high)


DELAY_SECONDS = Bounds((0, 30 * 86_400))
JITTER = Bounds((0, 1))
DEADLINE_SECONDS = Bounds((0, 366 * 86_400))
TIMEOUT_SECONDS = Bounds((0.1, float("inf")))
"""The maximum is the setting `timeout_seconds_max`."""
CONCURRENCY = Bounds((1, 10_000))
RATE = Bounds((0.001, 100_000))
FAILURES = Bounds((1, 1_000_000))
OPEN_SECONDS = Bounds((1, 86_400))
PROBE_SECONDS = Bounds((0.1, 86_400))
DISABLE_AFTER_SECONDS = Bounds((60, 365 * 86_400))
OVERLAP_SECONDS = Bounds((0, 30 * 86_400))
SUCCESS = Bounds((0.5, 0.99999))
P95_SECONDS = Bounds((0.001, 259_200))
"""The maximum is the upper bound of the last finite bucket in the histogram of delivery times. A longer target could
not be checked."""
OLDEST_SECONDS = Bounds((1, 30 * 86_400))

Name: TypeAlias = Annotated[str, stated(minLength=1, maxLength=NAME_CHARACTERS_MAX)]
Description: TypeAlias = Annotated[str, stated(maxLength=DESCRIPTION_CHARACTERS_MAX)]
Code: TypeAlias = Annotated[str, stated(pattern=CODE_PATTERN)]
EventTypes: TypeAlias = Annotated[
    tuple[Annotated[str, stated(pattern=TYPES_PATTERN)], ...], Meta(max_length=1_000, extra_json_schema={"minItems": 1})
]
Codes: TypeAlias = Annotated[tuple[Code, ...], Meta(max_length=100)]
CodeMap: TypeAlias = Annotated[
    dict[str, Code], Meta(max_length=1_000, extra_json_schema={"propertyNames": {"pattern": CODE_PATTERN}})
]
Headers: TypeAlias = Annotated[
    dict[str, Annotated[str, stated(pattern=HEADER_VALUE_PATTERN, maxLength=4_000)]],
    Meta(max_length=100, extra_json_schema={"propertyNames": {"pattern": HEADER_NAME_PATTERN}}),
]
Delays: TypeAlias = Annotated[tuple[Annotated[float, DELAY_SECONDS.rule], ...], Meta(max_length=100)]
Rate: TypeAlias = Annotated[float, RATE.rule]

# -- parts of an endpoint ----------------------------------------------------------------------------------------


class Policy(Answer, frozen=True):
    """When to retry: the delays in seconds, their jitter, and the deadline after which retries stop."""

    delays: Delays
    jitter: Annotated[float, JITTER.rule] = 0.1
    deadline_seconds: Annotated[float, DEADLINE_SECONDS.rule] | None = None
    name: Annotated[str, stated(maxLength=NAME_CHARACTERS_MAX)] = ""
    retry_on_recovery: bool = False
    """Whether retries are brought forward when the receiver is back after an outage that opened the circuit. Failed
    probes then use up no retry."""
    manual: bool = False
    """When no retry is left, the delivery waits in the retry queue for an operator instead of becoming a dead
    letter."""
    ignore_retry_after: bool = False
    """Whether the delays apply even if the receiver asks for another one with `Retry-After`."""


class PolicyIn(Policy, frozen=True, forbid_unknown_fields=True):
    """`Policy` in a request: unknown fields are rejected."""


class CircuitRules(Answer, frozen=True):
    """How many consecutive failures open the circuit, how often a receiver is probed while it is open, and when the
    endpoint is disabled."""

    enabled: bool = True
    """If false, the circuit never opens."""
    failures_max: Annotated[int, FAILURES.rule] = 5
    probe_seconds_min: Annotated[float, PROBE_SECONDS.rule] = 1.0
    """The shortest pause before a probe. The pause is a quarter of the outage so far."""
    open_seconds: Annotated[float, OPEN_SECONDS.rule] = 300.0
    """The longest pause before a probe. If it equals `probe_seconds_min`, all pauses have this length."""
    disable_after_seconds: Annotated[float, DISABLE_AFTER_SECONDS.rule] = 432_000.0


class CircuitRulesIn(CircuitRules, frozen=True, forbid_unknown_fields=True):
    """`CircuitRules` in a request: unknown fields are rejected."""


class Slo(Answer, frozen=True):
    """A target: the share of deliveries that must succeed, how soon 95 % of them must arrive, and how long the oldest
    waiting delivery may wait."""

    success: Annotated[float, SUCCESS.rule] = 0.99
    p95_seconds: Annotated[float, P95_SECONDS.rule] = 60.0
    oldest_seconds: Annotated[float, OLDEST_SECONDS.rule] = 3_600.0


class SloIn(Slo, frozen=True, forbid_unknown_fields=True):
    """`Slo` in a request: unknown fields are rejected."""


class DestinationKind(Answer, frozen=True, tag_field="kind"):
    """The base of all kinds of destination."""

    label: ClassVar[str]
    """The name of the kind in the console."""
    short: ClassVar[str] = ""
    """The endpoint field that is the short form of this kind."""

    @property
    def target(self) -> str:
        """The text shown in lists: the value of the first field, or the kind if it has no fields."""
        fields = self.__struct_fields__
        return str(getattr(self, fields[0]) if fields else self.__struct_config__.tag)


class HttpDestination(DestinationKind, frozen=True, tag="http"):
    """A URL that receives HTTP requests."""

    label: ClassVar[str] = "URL"
    short: ClassVar[str] = "url"
    url: str


class HttpDestinationIn(HttpDestination, frozen=True, tag="http", forbid_unknown_fields=True):
    """`HttpDestination` in a request: unknown fields are rejected."""


class HandlerDestination(DestinationKind, frozen=True, tag="handler"):
    """A Python handler that workers have registered under this name."""

    label: ClassVar[str] = "Python handler"
    short: ClassVar[str] = "handler"
    name: Name


class HandlerDestinationIn(HandlerDestination, frozen=True, tag="handler", forbid_unknown_fields=True):
    """`HandlerDestination` in a request: unknown fields are rejected."""


class LogDestination(DestinationKind, frozen=True, tag="log"):
    """The log of the worker, for trying things out. Each event is logged as one line with the start of its payload."""

    label: ClassVar[str] = "Log"


class LogDestinationIn(LogDestination, frozen=True, tag="log", forbid_unknown_fields=True):
    """`LogDestination` in a request: unknown fields are rejected."""


Destination: TypeAlias = HttpDestination | HandlerDestination | LogDestination
DestinationIn: TypeAlias = HttpDestinationIn | HandlerDestinationIn | LogDestinationIn
DESTINATIONS: dict[str, type[DestinationKind]] = {
    str(one.__struct_config__.tag): one for one in get_args(DestinationIn)
}
"""All kinds by name."""

PolicyForm: TypeAlias = Annotated[
    Annotated[str, stated(enum=list(POLICY_NAMES))] | Delays | PolicyIn,
    Meta(extra={"expected": "the name of a policy, a list of delays in seconds, or an object"}),
]
"""The name of a policy, a list of delays in seconds, or a complete policy."""
Policies: TypeAlias = Annotated[
    dict[str, PolicyForm], Meta(max_length=100, extra_json_schema={"propertyNames": {"pattern": TYPES_PATTERN}})
]

_FOUR, _THREE, _TWO = (rf"[A-Za-z0-9+/]{{{count}}}" for count in (4, 3, 2))
_SHARED_SECRET = f"whsec_(({_FOUR}){{8,21}}({_TWO}==)?|({_FOUR}){{8,20}}{_THREE}=)"
"""The base64 of 24 to 64 bytes."""
_PRIVATE_KEY = f"whsk_(({_FOUR}){{10}}{_THREE}=|({_FOUR}){{21}}{_TWO}==)"
"""The base64 of 32 or 64 bytes."""
_SECRET_RULES = {"pattern": f"^({_SHARED_SECRET}|{_PRIVATE_KEY})$", "writeOnly": True}
OwnSecret: TypeAlias = Annotated[str, Meta(max_length=200, extra_json_schema=_SECRET_RULES)]

# -- requests ----------------------------------------------------------------------------------------------------


class EndpointIn(Request, frozen=True, kw_only=True):
    """A new endpoint. Give its `destination`, or one of the short forms `url` and `handler`."""

    name: Name
    description: Description = ""
    """What the endpoint is for."""
    destination: DestinationIn | None = None
    url: str | None = None
    """Short form of an `http` destination."""
    handler: Name | None = None
    """Short form of a `handler` destination."""
    event_types: EventTypes = ("*",)
    policy: PolicyForm | None = None
    """The name of a policy, a list of delays in seconds, or a complete policy."""
    policy_by_event_type: Policies = {}
    """Policies for single event types or patterns (`order.paid`, `order.*`); the most specific applies."""
    timeout_seconds: Annotated[float, TIMEOUT_SECONDS.rule] | None = None
    concurrency_max: Annotated[int, CONCURRENCY.rule] | None = None
    rate_per_second: Rate | None = None
    headers: Headers = {}
    retry_on: Codes = ()
    give_up_on: Codes = ()
    code_map: CodeMap = {}
    circuit: CircuitRulesIn = CircuitRulesIn()
    slo: SloIn | None = None
    """The endpoint's own target. If it has none, the organization's default applies; see `PUT /v1/slo/default`."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as `data`, instead of the payload alone."""
    batch: bool = False
    """Whether the endpoint's events are batches. With `/v1/batches`, batches can be listed by status and
    resubmitted."""
    signing: Signing = "v1"
    """`v1` is HMAC-SHA256 with a shared secret; `v1a` is Ed25519, for which the receiver has the public key."""
    secret: OwnSecret | None = None
    """Your own signing secret, so that receivers need not change: `whsec_` and the base64 of 24 to 64 random bytes, or
    for `v1a` the private key, `whsk_` and the base64 of 32 bytes. By default, a new one is created."""


class EndpointPatch(Request, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their value; null resets a field to its default."""

    name: Name | UnsetType = UNSET
    """The name cannot be reset, because it has no default."""
    description: Description | None | UnsetType = UNSET
    destination: DestinationIn | UnsetType = UNSET
    """Replaces the current destination, whatever its kind. It cannot be reset, because it has no default."""
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
    """The version that the change is based on. If it is no longer the newest, the response is a 409."""


class EndpointFields(TypedDict, total=False):
    """The settings of an endpoint, as keyword arguments of the client."""

    description: str | None
    destination: Mapping[str, Any]
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
    """The settings of a new endpoint."""

    name: Required[str]
    signing: Signing
    secret: str | None


class ChangedFields(EndpointFields, total=False):
    """The settings to change. None resets a field to its default. If `version` is given, it must be the endpoint's
    newest version."""

    name: str
    version: int


class EndpointsQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the list of endpoints."""

    state: ListedState | None = None


class ResumeIn(Request, frozen=True):
    """How to deliver the backlog: immediately or at a limited rate, optionally without old events."""

    drain_per_second: Rate | None = None
    skip_older_than: Time | None = None
    """Deliveries of events accepted before this time become dead letters."""


class RotateIn(Request, frozen=True):
    """How to rotate the secret."""

    overlap_seconds: Annotated[float, OVERLAP_SECONDS.rule] = 86_400.0
    """How long requests are signed with both the old and the new secret; at most 30 days."""
    signing: Signing | None = None
    """The kind of signature to change to; by default, it stays the same."""
    secret: OwnSecret | None = None
    """Your own new secret, as in the request that creates an endpoint. By default, a new one is created."""


# -- answers -----------------------------------------------------------------------------------------------------


class Endpoint(Answer, frozen=True):
    """An endpoint. Responses never contain its secret or the values of its headers."""

    endpoint_id: UUID
    name: str
    description: str
    destination: Destination
    url: str | None
    """The URL of an `http` destination."""
    handler: str | None
    """The name of a `handler` destination."""
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
    """The endpoint's own target. If null, the organization's default applies."""
    envelope: bool
    batch: bool
    signing: Signing
    public_key: str | None
    """With `v1a`, the public key with which receivers verify signatures; otherwise null."""
    state: EndpointStateName
    state_reason: str
    created_at: Time
    updated_at: Time
    version: int
    """Increases with every change."""


class NewEndpoint(Endpoint, frozen=True):
    """The response to a request that creates an endpoint. Only this response contains the signing secret (with `v1a`,
    the public key). It is empty if you gave your own secret."""

    secret: str


class EndpointPage(Listing[Endpoint], frozen=True):
    """One page of the endpoints."""

    endpoints: tuple[Endpoint, ...]


class RotatedSecret(Answer, frozen=True):
    """The new signing secret (with `v1a`, the public key), shown only once. It is empty if you gave your own secret.
    Until the old secret expires, requests are also signed with it."""

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
    """The circuit breaker of an endpoint. While it is open, deliveries wait without using up attempts."""

    endpoint_id: UUID
    state: CircuitStateName
    failures: int
    """Consecutive failures so far."""
    failing_since: Time | None
    until: Time | None
    """If open, the time from which one delivery may be attempted as a probe. If half-open, the time from which the
    probe counts as lost."""
    history: tuple[CircuitChange, ...]


# -- inputs: the options of the command line and the form of the console -----------------------------------------

InputKind: TypeAlias = Literal[
    "line",
    "text",
    "lines",
    "number",
    "whole",
    "span",
    "percent",
    "tick",
    "pairs",
    "headers",
    "policy",
    "policies",
    "signing",
    "secret",
    "destination",
]
"""How a value is entered: `text` has several lines; `lines` and `pairs` are lists with one item per line."""


class Input(NamedTuple):
    """A setting, or a part of a setting, as people enter it."""

    name: str
    """A field of `EndpointIn`, or a part of one: `circuit.open_seconds`."""
    kind: InputKind
    section: str
    """The section of the console form."""
    label: str
    hint: str = ""
    placeholder: str = ""
    option: str = ""
    """The option of `endpoints create` and `endpoints update`. Empty for arguments and for console-only inputs."""
    metavar: str = ""
    help: str = ""
    shown: bool = False
    """Whether the endpoint's page in the console shows the value, provided that the endpoint has one."""

    @property
    def field(self) -> str:
        return self.name.partition(".")[0]


# fmt: off
IDENTITY, RETRIES, BY_CODE = "Identity", "Retries", "By event type and code"
REQUESTS, BREAKER, TARGET = "Requests", "Circuit breaker", "Target"
INPUTS = (
    Input("name", "line", IDENTITY, "Name", "Its name in lists, alerts and the audit log.", "shop"),
    Input("description", "text", IDENTITY, "Description", "What it is for, and whom to ask about it.",
          option="--description", metavar="TEXT", help="The purpose of the endpoint, and whom to ask about it.",
          shown=True),
    Input("destination", "destination", IDENTITY, "Reached by", option="--destination", metavar="KIND|JSON",
          help="The destination, if not a URL or handler: its kind, or JSON with its fields."),
    Input("url", "line", IDENTITY, "URL",
          "Must be https, unless the operator of this installation allows plain http.",
          "https://example.com/hooks"),
    Input("handler", "line", IDENTITY, "Handler", "The name that workers have registered it under."),
    Input("event_types", "lines", IDENTITY, "Event types",
          "One per line; a * at the end matches any ending: order.*", "order.*", option="--type",
          metavar="TYPE", help="An event type to deliver, such as order.*; repeatable. [default: *]"),
    Input("signing", "signing", IDENTITY, "Signature", "Standard Webhooks; most receivers support v1."),
    Input("secret", "secret", IDENTITY, "Own secret",
          "Only if the receiver has one already: whsec_…, or for v1a the private key whsk_….", "a new one is created"),
    Input("policy", "policy", RETRIES, "Policy", "When failed deliveries are retried, and for how long.",
          option="--policy", metavar="POLICY", help="When to retry: {policies}, or delays such as 5s,5m,2h."),
    Input("policy.delays", "line", RETRIES, "Delays",
          "The delay before each retry: 30s, 5m, 2h. Empty means no retry.", "1m, 5m, 15m"),
    Input("policy.jitter", "percent", RETRIES, "Jitter, in percent",
          "How much each delay varies, so that retries do not arrive all at once.", "10"),
    Input("policy.deadline_seconds", "span", RETRIES, "Deadline",
          "No retry starts later than this after the event was accepted or scheduled.", "none"),
    Input("policy.retry_on_recovery", "tick", RETRIES, "Retry as soon as the receiver is back",
          "Brings retries forward when the circuit closes; failed probes then use up no retry."),
    Input("policy.manual", "tick", RETRIES, "In the end, wait for an operator",
          "When no retry is left, the delivery stays in the retry queue instead of becoming a dead letter."),
    Input("policy.ignore_retry_after", "tick", RETRIES, "Ignore Retry-After",
          "The delays apply even if the receiver asks for another one."),
    Input("policy_by_event_type", "policies", BY_CODE, "Other policies for some event types",
          "One per line: order.* = quick, or order.paid = 5s, 1m; jitter 20%; deadline 1d", "order.paid = quick"),
    Input("timeout_seconds", "span", REQUESTS, "Timeout of one attempt",
          "From the first packet to the last byte of the response.", option="--timeout", metavar="SPAN",
          help="The timeout of one attempt, such as 10s."),
    Input("concurrency_max", "whole", REQUESTS, "Concurrent attempts", "Across all workers.", "unlimited",
          option="--concurrency", metavar="N", help="The maximum number of concurrent attempts."),
    Input("rate_per_second", "number", REQUESTS, "Attempts per second", "Across all workers.", "unlimited",
          option="--rate", metavar="N", help="The maximum number of attempts per second."),
    Input("headers", "headers", REQUESTS, "Headers",
          "Name: value, one per line. Values are encrypted and not shown again; *** keeps the current value.",
          "X-Tenant: 17", option="--header", metavar="'NAME: VALUE'", help="Sent with every request; repeatable."),
    Input("retry_on", "lines", BY_CODE, "Retry although permanent",
          "Codes or HTTP statuses, one per line; * retries everything.", "404", option="--retry-on",
          metavar="CODE", help="Retry this code or status although it is permanent; * means all."),
    Input("give_up_on", "lines", BY_CODE, "Never retry",
          "Codes or HTTP statuses that make a delivery a dead letter without a retry.", "RATE_LIMIT",
          option="--give-up-on", metavar="CODE", help="Do not retry this code or status although it is transient."),
    Input("code_map", "pairs", BY_CODE, "The receiver’s own codes", "What each code means, one per line.",
          "E17 = RATE_LIMIT", option="--code", metavar="THEIRS=OURS",
          help="What a receiver-specific code means; repeatable."),
    Input("circuit.enabled", "tick", BREAKER, "Use a circuit breaker",
          "Without one, deliveries are attempted however often they fail.", option="--circuit/--no-circuit",
          help="Whether its circuit may open."),
    Input("circuit.failures_max", "whole", BREAKER, "Consecutive failures until it opens", placeholder="5",
          option="--circuit-failures", metavar="N", help="Open its circuit after this many consecutive failures."),
    Input("circuit.probe_seconds_min", "span", BREAKER, "Shortest pause before a probe",
          "While the circuit is open, the pause before each probe is a quarter of the outage so far.", "1s",
          option="--circuit-probe", metavar="SPAN", help="The shortest pause before a probe, such as 1s."),
    Input("circuit.open_seconds", "span", BREAKER, "Longest pause before a probe",
          "Enter the same value twice to make all pauses equal.", "5m", option="--circuit-open",
          metavar="SPAN", help="The longest pause before a probe, such as 5m."),
    Input("circuit.disable_after_seconds", "span", BREAKER, "Disabled after",
          "After this time without a single success. Deliveries are then held, not lost.", "5d"),
    Input("slo.success", "percent", TARGET, "Successful deliveries, in percent",
          "If all three are empty, the target of the organization applies.", "99", option="--slo",
          metavar="SHARE,SPAN[,SPAN]",
          help="The target, such as 99.9%,30s,1h: success rate, time in which 95 % arrive, maximum age of waiting "
               "deliveries."),
    Input("slo.p95_seconds", "span", TARGET, "95% arrive within", placeholder="1m"),
    Input("slo.oldest_seconds", "span", TARGET, "Maximum age of waiting deliveries", placeholder="1h"),
    Input("envelope", "tick", REQUESTS, "Wrap the payload in an envelope",
          "Deliver type, timestamp and data instead of the payload alone.", option="--envelope/--no-envelope",
          help="Wrap payloads as {type, timestamp, data}."),
    Input("batch", "tick", REQUESTS, "Its events are batches",
          "Batches are listed by status and can be resubmitted; event types must be exact.",
          option="--batch/--no-batch", help="Its events are batches; its event types must be exact."),
)
# fmt: on

RESETTABLE = tuple(
    name for name in EndpointPatch.__struct_fields__ if name not in ("name", "destination", "url", "handler", "version")
)
"""Fields that can be reset to their defaults."""
