"""Before the first step: an endpoint is described by someone, checked, and sealed into the form that is kept."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.encryption import Sealer
from doorstep.engine.directory import seal_headers, seal_secret, unseal_headers
from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint, RetryPolicy, SigningSecret, Slo
from doorstep.model.record import Record
from doorstep.policy.retry import BUILT_IN, named
from doorstep.schemas import endpoints as rules
from doorstep.stores.text import check_storable
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.signature import new_private_key, new_secret, public_key_of

PolicyForm = RetryPolicy | str | Sequence[float]
"""A policy's name, its delays, or the policy itself."""

_HEADER_NAME = re.compile(rules.HEADER_NAME_PATTERN)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4000}")
_OURS = (
    "webhook-",
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "expect",
    "te",
    "user-agent",
    "x-correlation-id",
)
_CODE = re.compile(rules.CODE_PATTERN)
_PATTERN = re.compile(rules.TYPES_PATTERN)
_ASYMMETRIC = "v1a"
_SIGNINGS = ("v1", _ASYMMETRIC)


class EndpointForm(Record, frozen=True, kw_only=True):
    """An endpoint as its owner describes it."""

    name: str
    description: str = ""
    """What it is for; shown wherever the endpoint is."""
    url: str | None = None
    handler: str | None = None
    event_types: tuple[str, ...] = ("*",)
    policy: PolicyForm | None = None
    policy_by_event_type: Mapping[str, PolicyForm] = {}
    timeout_seconds: float | None = None
    concurrency_max: int | None = None
    rate_per_second: float | None = None
    headers: Mapping[str, str] = {}
    retry_on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()
    code_map: Mapping[str, str] = {}
    circuit: CircuitRules = CircuitRules()
    slo: Slo | None = None
    """Its own target (model/endpoint.py); without one that of its organization counts."""
    envelope: bool = False
    """Deliver `{"type", "timestamp", "data"}` with the payload as data, instead of the payload alone."""
    batch: bool = False
    """What goes to it are batches: they can be found by status, and resubmitted."""
    signing: str = "v1"
    """`v1`: a secret shared with the receiver (HMAC-SHA256); `v1a`: a key pair (Ed25519), the receiver has its half."""


class EndpointRules(NamedTuple):
    """What every enrolment is judged and sealed with."""

    sealer: Sealer
    guard: AddressGuard
    timeout_seconds_max: float
    standard: RetryPolicy = BUILT_IN["standard"]
    endpoints_max: int | None = None
    """Of one organization, deleted ones not counted."""


def new_endpoint(
    form: EndpointForm, rules: EndpointRules, *, endpoint_id: UUID, org_id: UUID, now: Instant
) -> tuple[Endpoint, str]:
    """The endpoint, and what its receiver verifies with: the only time that a shared secret can be seen."""
    check(form, rules.timeout_seconds_max)
    secret, verifier = new_signing(endpoint_id, form.signing, rules.sealer)
    endpoint = Endpoint(
        endpoint_id=endpoint_id,
        org_id=org_id,
        created_at=now,
        updated_at=now,
        secrets=(secret,),
        url=None if form.url is None else rules.guard.check_url(form.url).url,
        **_described(form, endpoint_id, rules),
    )
    return endpoint, verifier


def updated_endpoint(endpoint: Endpoint, changes: Mapping[str, Any], rules: EndpointRules) -> Endpoint:
    """The endpoint with some fields of its form changed, judged like a new one; its secrets stay.

    An unchanged URL is not judged again: what the operator allows may have changed since.
    """
    before = form_of(endpoint, rules.sealer)
    form = msgspec.structs.replace(before, **changes)
    check(form, rules.timeout_seconds_max)
    judged = form.url is None or form.url == before.url
    return msgspec.structs.replace(
        endpoint,
        url=form.url if judged else rules.guard.check_url(form.url or "").url,
        **_described(form, endpoint.endpoint_id, rules),
    )


def form_of(endpoint: Endpoint, sealer: Sealer) -> EndpointForm:
    """How its owner would describe the endpoint as it is now."""
    return EndpointForm(
        headers=unseal_headers(endpoint, sealer),
        **{name: getattr(endpoint, name) for name in EndpointForm.__struct_fields__ if name not in _SEALED},
    )


_SEALED = ("headers", "signing")
"""What an endpoint does not carry as its form had it."""


def _described(form: EndpointForm, endpoint_id: UUID, rules: EndpointRules) -> dict[str, Any]:
    """The fields of an endpoint that follow from its form, but for the URL."""
    plain = {name: getattr(form, name) for name in EndpointForm.__struct_fields__ if name not in _WORKED_OUT}
    return plain | {
        "policy": None if form.policy is None else policy_from(form.policy, rules.standard),
        "policy_by_event_type": {
            pattern: _policy_for(pattern, policy, rules) for pattern, policy in form.policy_by_event_type.items()
        },
        "sealed_headers": seal_headers(endpoint_id, rules.sealer, dict(form.headers)),
        "code_map": dict(form.code_map),
    }


_WORKED_OUT = ("url", "policy", "policy_by_event_type", "headers", "code_map", "signing")
"""What an endpoint does not take over from its form as it is."""


def new_signing(endpoint_id: UUID, signing: str, sealer: Sealer) -> tuple[SigningSecret, str]:
    """A new signing secret, sealed, and what the receiver verifies with."""
    secret, verifier = _signing_pair(signing)
    public_key = verifier if signing == _ASYMMETRIC else ""
    return SigningSecret(seal_secret(endpoint_id, sealer, secret), signing, public_key=public_key), verifier


def _signing_pair(signing: str) -> tuple[str, str]:
    """What we sign with and what the receiver verifies with: for `v1` it is the same."""
    if signing == _ASYMMETRIC:
        private_key = new_private_key()
        return private_key, public_key_of(private_key)
    shared = new_secret()
    return shared, shared


def policy_from(form: PolicyForm, standard: RetryPolicy = BUILT_IN["standard"]) -> RetryPolicy:
    if isinstance(form, str):
        return named(form, standard)
    policy = form if isinstance(form, RetryPolicy) else RetryPolicy(tuple(form))
    low, high = rules.DELAY_SECONDS
    if not all(low <= delay <= high for delay in policy.delays):
        raise InvalidInput("policy", f"delays must be from {low} to {high} seconds, got {list(policy.delays)}")
    if not rules.JITTER[0] <= policy.jitter <= rules.JITTER[1]:
        raise InvalidInput("policy", f"jitter must be from 0 to 1, got {policy.jitter}")
    if policy.name:
        _check_name("policy.name", policy.name)
    _bounded("policy.deadline_seconds", policy.deadline_seconds, rules.DEADLINE_SECONDS)
    return policy


def _policy_for(pattern: str, form: PolicyForm, rules: EndpointRules) -> RetryPolicy:
    """One of several: what is wrong with it is told under its own name."""
    try:
        return policy_from(form, rules.standard)
    except InvalidInput as error:
        field = f"policy_by_event_type.{pattern}{error.field.removeprefix('policy')}"
        raise InvalidInput(field, error.message) from None


def check(form: EndpointForm, timeout_seconds_max: float) -> None:
    """Refuse what cannot work, naming the field."""
    _check_name("name", form.name)
    _check_description(form.description)
    if form.handler is not None:
        _check_name("handler", form.handler)
    if (form.url is None) == (form.handler is None):
        raise InvalidInput("url", "an endpoint has a url or a handler, exactly one of the two")
    if form.envelope and form.handler is not None:
        raise InvalidInput("envelope", "is for endpoints with a url; a handler is given the type and the time anyway")
    if not form.event_types:
        raise InvalidInput("event_types", "must not be empty; use * to take every event")
    _check_patterns("event_types", form.event_types)
    _check_batch(form)
    _check_patterns("policy_by_event_type", form.policy_by_event_type)
    check_signing(form.signing)
    _check_numbers(form, timeout_seconds_max)
    for field in ("retry_on", "give_up_on", "code_map"):
        _check_codes(field, getattr(form, field))
    _check_codes("code_map", form.code_map.values())
    for name, value in form.headers.items():
        _check_header(name, value)


def _check_name(field: str, name: str) -> None:
    if not 1 <= len(name) <= rules.NAME_CHARACTERS_MAX:
        raise InvalidInput(field, f"must be 1 to {rules.NAME_CHARACTERS_MAX} characters, got {len(name)}")
    check_storable(field, name)


def _check_description(text: str) -> None:
    if len(text) > rules.DESCRIPTION_CHARACTERS_MAX:
        raise InvalidInput(
            "description", f"must be at most {rules.DESCRIPTION_CHARACTERS_MAX} characters, got {len(text)}"
        )
    check_storable("description", text)


def _check_patterns(field: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput(field, f"{pattern[:140]!r} is no event type; a * may only stand at the end")


def _check_batch(form: EndpointForm) -> None:
    """A pattern would make batches of events that nobody meant as such."""
    pattern = next((one for one in form.event_types if one.endswith("*")), None)
    if form.batch and pattern is not None:
        raise InvalidInput("event_types", f"a batch endpoint names its event types in full, got {pattern!r}")


def _check_codes(field: str, codes: Iterable[str]) -> None:
    """They are written into deliveries and log lines, which must stay small."""
    for code in codes:
        if not _CODE.fullmatch(code):
            raise InvalidInput(field, f"{code[:100]!r} is no code; codes are 1 to 100 printable ASCII characters")


def check_signing(signing: str) -> None:
    if signing not in _SIGNINGS:
        raise InvalidInput("signing", f"must be {' or '.join(_SIGNINGS)}, got {signing!r}")


def _check_numbers(form: EndpointForm, timeout_seconds_max: float) -> None:
    low, _ = rules.TIMEOUT_SECONDS
    _bounded("timeout_seconds", form.timeout_seconds, rules.Bounds((low, timeout_seconds_max)))
    _bounded("concurrency_max", form.concurrency_max, rules.CONCURRENCY)
    _bounded("rate_per_second", form.rate_per_second, rules.RATE)
    _bounded("circuit.failures_max", form.circuit.failures_max, rules.FAILURES)
    _bounded("circuit.open_seconds", form.circuit.open_seconds, rules.OPEN_SECONDS)
    _bounded("circuit.disable_after_seconds", form.circuit.disable_after_seconds, rules.DISABLE_AFTER_SECONDS)
    if form.slo is not None:
        check_slo(form.slo, "slo.")


def check_slo(slo: Slo, where: str = "") -> None:
    """Refuse a target that leaves no budget at all, or that nothing could miss."""
    _bounded(f"{where}success", slo.success, rules.SUCCESS)
    _bounded(f"{where}p95_seconds", slo.p95_seconds, rules.P95_SECONDS)
    _bounded(f"{where}oldest_seconds", slo.oldest_seconds, rules.OLDEST_SECONDS)


def _bounded(field: str, value: float | None, bounds: rules.Bounds) -> None:
    low, high = bounds
    if value is not None and not low <= value <= high:
        raise InvalidInput(field, f"must be from {low:.15g} to {high:.15g}, got {value:.15g}")


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or not value.isprintable():
        raise InvalidInput("headers", f"{name[:100]!r} is no header that can be sent; names and values are plain text")
    if name.lower().startswith(_OURS[0]) or name.lower() in _OURS:
        raise InvalidInput("headers", f"{name!r} is set by Doorstep and cannot be given")


class HandlerFields(TypedDict, total=False):
    """What may be said about any endpoint; None is the same as nothing said."""

    description: str | None
    """What it is for; shown wherever the endpoint is."""
    policy: PolicyForm | None
    policy_by_event_type: Mapping[str, PolicyForm] | None
    timeout_seconds: float | None
    concurrency_max: int | None
    rate_per_second: float | None
    retry_on: Sequence[str]
    """Codes or HTTP statuses to retry although they are permanent; `*` retries everything."""
    give_up_on: Sequence[str]
    code_map: Mapping[str, str] | None
    """Translates a carrier's own codes into ours."""
    circuit: CircuitRules | None
    slo: Slo | None
    """What share of its deliveries is to arrive, and how soon."""
    batch: bool
    """What it takes are batches; see `Doorstep.batch`."""


class DeclaredFields(HandlerFields, total=False):
    """What may be said beyond that where an endpoint is declared with its handler; see `Doorstep.handler`."""

    name: str | None
    org_id: UUID
    isolated: bool
    memory_mb_max: int | None


class EndpointFields(HandlerFields, total=False):
    """What may be said beyond that about one that is not declared with its handler."""

    url: str | None
    handler: str | None
    event_types: Sequence[str]
    headers: Mapping[str, str] | None
    envelope: bool
    signing: str


def form_from(name: str, fields: Mapping[str, object]) -> EndpointForm:
    """The form of an endpoint from `EndpointFields`."""
    for field in fields:
        if field not in EndpointForm.__struct_fields__:
            raise InvalidInput(field, f"is not known; known are {', '.join(EndpointForm.__struct_fields__[1:])}")
    return EndpointForm(name=name, **{field: _kept(value) for field, value in fields.items() if value is not None})


def check_event_types(event_types: Sequence[object]) -> None:
    """A decorator without its parentheses is given the function, and would say nothing."""
    for event_type in event_types:
        if not isinstance(event_type, str):
            raise InvalidInput("event_types", f"must be text such as 'order.*', got {event_type!r}")


def check_function(what: str, function: Any) -> None:
    """ConfigError for what could only fail at each call, or would seem to succeed and have done nothing."""
    if not callable(function):
        raise ConfigError(f"{what} must be a function, got {function!r:.100}")
    if any(map(_is_generator, (function, getattr(type(function), "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{what} has a yield in it, so that a call would run nothing of it; return instead")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some that are written in C have none
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(f"{what} must take one argument, got {signature}") from None


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _kept(value: object) -> Any:
    """Lists would be shared with whoever gave them."""
    return tuple(value) if isinstance(value, list) else value
