"""Endpoints: what can be set of them, how they are shown, their policies, circuits and targets.

A new setting needs a line in `EndpointIn`, `EndpointPatch`, `EndpointFields` and `Endpoint`, and a row in the table of
inputs at the end, from which the options of the command line and the form of the console are made. The engine has it in
`model/endpoint.py` and `operations/endpoint_rules.py`, and `operations/endpoint_rules.py` lets programs say it of what they declare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Required, TypeAlias, TypedDict
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from doorstep.schemas.shape import Answer, Listing, ListQuery, Pagination, Request, Time, choice, told

EndpointStateName: TypeAlias = Annotated[str, choice("active", "paused", "disabled", "deleted")]
CircuitStateName: TypeAlias = Literal["closed", "open", "half_open"]
ListedState: TypeAlias = Literal["active", "paused", "disabled"]
Signing: TypeAlias = Literal["v1", "v1a"]
POLICY_NAMES = ("carrier", "immediate", "manual", "patient", "pipeline", "quick", "standard")

NAME_CHARACTERS_MAX = 200
DESCRIPTION_CHARACTERS_MAX = 1_000
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
"""A longer time could not be seen to be missed: it is in the last bucket of the time to delivery."""
OLDEST_SECONDS = Bounds((1, 30 * 86_400))

Name: TypeAlias = Annotated[str, told(minLength=1, maxLength=NAME_CHARACTERS_MAX)]
Description: TypeAlias = Annotated[str, told(maxLength=DESCRIPTION_CHARACTERS_MAX)]
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
    description: Description = ""
    """What it is for, in the words of those who look after it."""
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
    description: Description | None | UnsetType = UNSET
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

    description: str | None
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

    state: ListedState | None = None


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
    description: str
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
]
"""How a value is entered: `text` has several lines, `lines` and `pairs` are lists with one item on each line."""


class Input(NamedTuple):
    """A setting, or one part of a setting, as people enter it."""

    name: str
    """The field of `EndpointIn`; `circuit.open_seconds` is a part of one."""
    kind: InputKind
    section: str
    """The part of the console's form that it stands in."""
    label: str
    hint: str = ""
    placeholder: str = ""
    option: str = ""
    """Of `endpoints create` and `endpoints update`; a setting without one is an argument there, or only in the console."""
    metavar: str = ""
    help: str = ""
    shown: bool = False
    """Whether the endpoint's page in the console shows the text that was entered, if there is one."""

    @property
    def field(self) -> str:
        return self.name.partition(".")[0]


IDENTITY, RETRIES, BY_CODE, REQUESTS, BREAKER, TARGET = (
    "What it is",
    "Retries",
    "By event type and code",
    "Requests",
    "Circuit breaker",
    "Target",
)

# fmt: off
INPUTS = (
    Input("name", "line", IDENTITY, "Name", "What lists, alerts and the audit log call it.", "shop"),
    Input("description", "text", IDENTITY, "Description", "What it is for, and whom to ask about it.",
          option="--description", metavar="TEXT", help="What it is for, and whom to ask about it.", shown=True),
    Input("url", "line", IDENTITY, "URL",
          "https; what is plain http must be allowed by the operator of this installation.",
          "https://example.com/hooks"),
    Input("handler", "line", IDENTITY, "Handler", "The name under which workers have registered it."),
    Input("event_types", "lines", IDENTITY, "Event types",
          "One on each line; a * at the end stands for any rest: order.*", "order.*", option="--type",
          metavar="TYPE", help="An event type it takes, such as order.*; repeatable. [default: *]"),
    Input("signing", "signing", IDENTITY, "Signature", "Standard Webhooks; most receivers know v1."),
    Input("policy", "policy", RETRIES, "Policy", "When a failed delivery is tried again, and when it is given up.",
          option="--policy", metavar="POLICY", help="When to retry: {policies}, or pauses such as 5s,5m,2h."),
    Input("policy.delays", "line", RETRIES, "Delays",
          "The pause before each retry: 30s, 5m, 2h. Nothing means no retry.", "1m, 5m, 15m"),
    Input("policy.jitter", "percent", RETRIES, "Jitter, in percent",
          "By how much each pause varies, so that many do not come back at once.", "10"),
    Input("policy.deadline_seconds", "span", RETRIES, "Deadline",
          "No retry later than this after the event was accepted, or was to be delivered.", "none"),
    Input("policy_by_event_type", "policies", BY_CODE, "Other policies for some event types",
          "One on each line: order.* = quick, or order.paid = 5s, 1m; jitter 20%; deadline 1d", "order.paid = quick"),
    Input("timeout_seconds", "span", REQUESTS, "One attempt takes at most",
          "From the first packet to the last byte of the answer.", option="--timeout", metavar="SPAN",
          help="How long one attempt may take: 10s"),
    Input("concurrency_max", "whole", REQUESTS, "Attempts at once", "Over all workers together.", "as many as go",
          option="--concurrency", metavar="N", help="At most so many attempts at once."),
    Input("rate_per_second", "number", REQUESTS, "Attempts a second", "Over all workers together.", "as many as go",
          option="--rate", metavar="N", help="At most so many attempts a second."),
    Input("headers", "headers", REQUESTS, "Headers",
          "Name: value, one on each line. Values are kept sealed and not shown again; *** keeps the one that is there.",
          "X-Tenant: 17", option="--header", metavar="'NAME: VALUE'", help="Sent with every request; repeatable."),
    Input("retry_on", "lines", BY_CODE, "Retried although permanent",
          "Codes or HTTP statuses, one on each line; * retries everything.", "404", option="--retry-on",
          metavar="CODE", help="Retry this code or status although it is permanent; * is all."),
    Input("give_up_on", "lines", BY_CODE, "Given up at once",
          "Codes or HTTP statuses that are not worth another try.", "RATE_LIMIT", option="--give-up-on",
          metavar="CODE", help="Do not retry this code or status although it is transient."),
    Input("code_map", "pairs", BY_CODE, "The receiver’s own codes", "What each stands for, one on each line.",
          "E17 = RATE_LIMIT", option="--code", metavar="THEIRS=OURS",
          help="What a code of the receiver's own stands for; repeatable."),
    Input("circuit.failures_max", "whole", BREAKER, "Opens after so many failures in a row", placeholder="5",
          option="--circuit-failures", metavar="N", help="Open its circuit after so many failures in a row."),
    Input("circuit.open_seconds", "span", BREAKER, "Stays open for",
          "Then one probe goes; if it fails, it opens again.", "5m", option="--circuit-open", metavar="SPAN",
          help="Keep it open so long: 5m"),
    Input("circuit.disable_after_seconds", "span", BREAKER, "Disabled after",
          "So long without one success. Deliveries are held then, not lost.", "5d"),
    Input("slo.success", "percent", TARGET, "Deliveries that arrive, in percent",
          "Nothing anywhere here means the organization’s target.", "99", option="--slo",
          metavar="SHARE,SPAN[,SPAN]",
          help="Its target: what is to arrive, how soon 95 % of it, how old what waits may be: 99.9%,30s,1h"),
    Input("slo.p95_seconds", "span", TARGET, "95% of them within", placeholder="1m"),
    Input("slo.oldest_seconds", "span", TARGET, "The oldest that waits is at most", placeholder="1h"),
    Input("envelope", "tick", REQUESTS, "Wrap the payload in an envelope",
          "Deliver type, timestamp and data instead of the payload alone.", option="--envelope/--no-envelope",
          help="Wrap payloads as {type, timestamp, data}."),
    Input("batch", "tick", REQUESTS, "What goes to it are batches",
          "They can be found by status and resubmitted; event types are then named in full.",
          option="--batch/--no-batch", help="What it takes are batches; its types are named in full."),
)
# fmt: on

RESETTABLE = tuple(
    name for name in EndpointPatch.__struct_fields__ if name not in ("name", "url", "handler", "version")
)
"""Fields that can be put back to their defaults."""
