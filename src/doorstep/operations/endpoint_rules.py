"""Checks the description of an endpoint and turns it into the stored endpoint, with encrypted secrets and headers."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, get_args
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.encryption import Sealer
from doorstep.engine.directory import seal_headers, seal_secret, unseal_headers
from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.endpoint import (
    CircuitRules,
    Destination,
    Endpoint,
    EndpointSettings,
    HandlerDestination,
    HttpDestination,
    RetryPolicy,
    SigningSecret,
    Slo,
)
from doorstep.policy.retry import BUILT_IN, named
from doorstep.schemas import endpoints as rules
from doorstep.schemas.wording import from_msgspec
from doorstep.stores.limits import check_name, check_storable
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler_arguments import check_parameters
from doorstep.transports.signature import check_own_secret, new_private_key, new_secret, public_key_of

PolicyForm = RetryPolicy | str | Sequence[float] | Mapping[str, object]
"""The name of a policy, a list of delays in seconds, or a complete policy, also as a mapping such as
`{"delays": [1, 10]}`."""

_HEADER_NAME = re.compile(rules.HEADER_NAME_PATTERN)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4000}")
_RESERVED_HEADERS = (
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


class EndpointForm(EndpointSettings, frozen=True, kw_only=True):
    """An endpoint as its owner describes it."""

    destination: Destination | None = None
    """The destination; None if one of its short forms, `url` or `handler`, is set instead."""
    url: str | None = None
    handler: str | None = None
    policy: PolicyForm | None = None
    policy_by_event_type: Mapping[str, PolicyForm] = {}
    headers: Mapping[str, str] = {}
    code_map: Mapping[str, str] = {}
    signing: str = "v1"
    """`v1` uses a secret that is shared with the receiver (HMAC-SHA256). `v1a` uses a key pair (Ed25519); the receiver
    has the public key."""
    secret: str | None = None
    """The signing secret, if receivers already have one: `whsec_…`, or for `v1a` the private key `whsk_…`. By default,
    a new one is created."""


class EndpointRules(NamedTuple):
    """The services and limits for checking an endpoint and encrypting its secrets."""

    sealer: Sealer
    guard: AddressGuard
    timeout_seconds_max: float
    standard: RetryPolicy = BUILT_IN["standard"]
    endpoints_max: int | None = None
    """The maximum number of endpoints in one organization. Deleted ones do not count."""
    defaults: tuple[EndpointForm, tuple[str, ...]] = EndpointForm(name=""), ()
    """The program's defaults for new endpoints; see `with_defaults`."""


def new_endpoint(
    form: EndpointForm, rules: EndpointRules, *, endpoint_id: UUID, org_id: UUID, now: Instant
) -> tuple[Endpoint, str]:
    """Create an endpoint. Returns it together with the secret or public key that its receiver needs to verify
    signatures. A shared secret is returned only here, and only if it is new: for an own secret, the text is empty."""
    check(form, rules.timeout_seconds_max)
    secret, verifier = new_signing(endpoint_id, form.signing, rules.sealer, form.secret)
    endpoint = Endpoint(
        endpoint_id=endpoint_id,
        org_id=org_id,
        created_at=now,
        updated_at=now,
        secrets=(secret,),
        destination=_guarded(form, rules.guard),
        **_fields_from(form, endpoint_id, rules),
    )
    return endpoint, verifier


def updated_endpoint(endpoint: Endpoint, changes: Mapping[str, Any], rules: EndpointRules) -> Endpoint:
    """The endpoint with some fields changed, checked like a new one; its secrets are kept.

    The address guard does not check an unchanged destination again. Otherwise, if the allowed address ranges had
    changed in the meantime, a change to any other field could fail.
    """
    # If all headers are replaced, the old ones need not be readable: the key that encrypted them may be lost.
    known = msgspec.structs.replace(endpoint, sealed_headers=b"") if "headers" in changes else endpoint
    before = form_of(known, rules.sealer)
    form = msgspec.structs.replace(before, **{**changes, **_changed_destination(before, changes)})
    check(form, rules.timeout_seconds_max)
    unchanged = _destination(form) == endpoint.destination
    return msgspec.structs.replace(
        endpoint,
        destination=endpoint.destination if unchanged else _guarded(form, rules.guard),
        **_fields_from(form, endpoint.endpoint_id, rules),
    )


def _changed_destination(before: EndpointForm, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The three fields that describe the destination, with their values after the change.

    A new `destination` replaces all three. A new `url` or `handler` changes only that field: to replace one with the
    other, a change must set both. If a change sets none of the three, the destination stays as it is.
    """
    if changes.get("destination") is not None:
        return {"url": changes.get("url"), "handler": changes.get("handler")}
    short = {name: changes.get(name, getattr(before, name)) for name in ("url", "handler")}
    unchanged = short == {"url": before.url, "handler": before.handler}
    return {"destination": before.destination if unchanged else None, **short}


def form_of(endpoint: Endpoint, sealer: Sealer) -> EndpointForm:
    """The form that describes the current endpoint."""
    return EndpointForm(
        headers=unseal_headers(endpoint, sealer),
        **{name: getattr(endpoint, name) for name in EndpointForm.__struct_fields__ if name not in _SEALED},
    )


_SEALED = ("headers", "signing", "secret")
"""Fields of the form that the endpoint stores encrypted."""


def _fields_from(form: EndpointForm, endpoint_id: UUID, rules: EndpointRules) -> dict[str, Any]:
    """The fields of an endpoint that follow from its form, except the destination."""
    settings = {name: getattr(form, name) for name in EndpointSettings.__struct_fields__}
    return settings | {
        **policies_of(form, rules.standard),
        "sealed_headers": seal_headers(endpoint_id, rules.sealer, dict(form.headers)),
        "code_map": dict(form.code_map),
    }


def new_signing(endpoint_id: UUID, signing: str, sealer: Sealer, own: str | None = None) -> tuple[SigningSecret, str]:
    """A signing secret, encrypted, and the secret or public key with which the receiver verifies signatures.

    The secret is new unless the caller has its `own`. An own shared secret is not returned.
    """
    if own is not None:
        check_own_secret(own, signing)
    secret = own or (new_private_key() if signing == _ASYMMETRIC else new_secret())
    public_key = public_key_of(secret) if signing == _ASYMMETRIC else ""
    verifier = public_key or ("" if own else secret)
    return SigningSecret(seal_secret(endpoint_id, sealer, secret), signing, public_key=public_key), verifier


def policy_from(form: PolicyForm, standard: RetryPolicy = BUILT_IN["standard"]) -> RetryPolicy:
    policy = form if isinstance(form, RetryPolicy) else _policy_given(form, standard)
    low, high = rules.DELAY_SECONDS
    if not all(low <= delay <= high for delay in policy.delays):
        raise InvalidInput("policy", f"delays must be from {low} to {high} seconds, got {list(policy.delays)}")
    if not rules.JITTER[0] <= policy.jitter <= rules.JITTER[1]:
        raise InvalidInput("policy", f"jitter must be from 0 to 1, got {policy.jitter}")
    if policy.name:
        check_name("policy.name", policy.name, rules.NAME_CHARACTERS_MAX)
    check_bounds("policy.deadline_seconds", policy.deadline_seconds, rules.DEADLINE_SECONDS)
    return policy


def _policy_given(form: object, standard: RetryPolicy) -> RetryPolicy:
    given = _converted("policy", form, rules.PolicyForm)
    if isinstance(given, str):
        return named(given, standard)
    return RetryPolicy(given) if isinstance(given, tuple) else RetryPolicy(**msgspec.structs.asdict(given))


def policies_of(form: EndpointForm, standard: RetryPolicy) -> dict[str, Any]:
    """The fields of the form that contain policies, with each policy as a RetryPolicy."""
    by_type = form.policy_by_event_type
    return {
        "policy": None if form.policy is None else policy_from(form.policy, standard),
        "policy_by_event_type": {pattern: _policy_for(pattern, one, standard) for pattern, one in by_type.items()},
    }


def _policy_for(pattern: str, form: PolicyForm, standard: RetryPolicy) -> RetryPolicy:
    """Like `policy_from`, but an error names this pattern's field in `policy_by_event_type`."""
    try:
        return policy_from(form, standard)
    except InvalidInput as error:
        field = f"policy_by_event_type.{pattern}{error.field.removeprefix('policy')}"
        raise InvalidInput(field, error.message) from None


def check(form: EndpointForm, timeout_seconds_max: float) -> None:
    """Raise InvalidInput for the first invalid field. This includes every check that is possible before the store is
    open."""
    check_name("name", form.name, rules.NAME_CHARACTERS_MAX)
    if len(form.description) > rules.DESCRIPTION_CHARACTERS_MAX:
        most, seen = rules.DESCRIPTION_CHARACTERS_MAX, len(form.description)
        raise InvalidInput("description", f"must be at most {most} characters, got {seen}")
    check_storable("description", form.description)
    destination = _destination(form)
    if isinstance(destination, HandlerDestination):
        field = "handler" if form.handler is not None else "destination.name"
        check_name(field, destination.name, rules.NAME_CHARACTERS_MAX)
    if form.envelope and not destination.signed:
        raise InvalidInput(
            "envelope", "is for endpoints with a url; other destinations receive the type and the time anyway"
        )
    if not form.event_types:
        raise InvalidInput("event_types", "must not be empty; use * to receive all events")
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
    policies_of(form, BUILT_IN["standard"])


def _destination(form: EndpointForm) -> Destination:
    """The destination, from whichever of the three fields is set."""
    given: dict[str, Destination] = {}
    if form.url is not None:
        given["url"] = HttpDestination(form.url)
    if form.handler is not None:
        given["handler"] = HandlerDestination(form.handler)
    if form.destination is not None:
        given["destination"] = form.destination
    if not given:
        raise InvalidInput("url", f"an endpoint needs a url, a handler or a destination of one of the kinds {_KINDS}")
    first, *others = given
    for other in others:
        if given[other] != given[first]:
            raise InvalidInput(
                first, f"contradicts {other}; an endpoint has one destination, so set only one of the two"
            )
    return given[first]


def _guarded(form: EndpointForm, guard: AddressGuard) -> Destination:
    """The destination as it is stored. A URL is normalised, and the address guard must allow it."""
    destination = _destination(form)
    if not isinstance(destination, HttpDestination):
        return destination
    try:
        return HttpDestination(guard.check_url(destination.url).url)
    except InvalidInput as error:
        raise InvalidInput("url" if form.url is not None else "destination.url", error.message) from None


_LOOKUP_SECONDS = 2.0
"""How long a change waits for the address of a host. If it is not known by then, only its deliveries are checked."""


async def check_plain_host(url: str | None, destination: Destination | None, guard: AddressGuard) -> None:
    """Raise InvalidInput for a plain http URL to which nothing could be delivered, because of its host's addresses."""
    field, given = ("url", url) if url is not None else ("destination.url", getattr(destination, "url", None))
    if given is None or not given.lower().startswith("http://"):
        return
    try:
        await asyncio.wait_for(asyncio.to_thread(guard.check_plain_host, given), _LOOKUP_SECONDS)
    except TimeoutError:
        return
    except InvalidInput as error:
        raise InvalidInput(field, error.message) from None


_KINDS = ", ".join(str(one.__struct_config__.tag) for one in get_args(Destination))


def destination_from(value: object) -> Destination:
    """A destination from its fields, such as `{"kind": "handler", "name": "ship"}`."""
    try:
        destination: Destination = msgspec.convert(value, Destination)
    except msgspec.ValidationError as error:
        raise InvalidInput("destination", f"must be of one of the kinds {_KINDS}, with its fields: {error}") from None
    return destination


def _check_patterns(field: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput(field, f"{pattern[:140]!r} is not a valid event type; * is only allowed at the end")


def _check_batch(form: EndpointForm) -> None:
    """Raise InvalidInput if a batch endpoint subscribes to a pattern, which could turn other events into batches by
    accident."""
    pattern = next((one for one in form.event_types if one.endswith("*")), None)
    if form.batch and pattern is not None:
        raise InvalidInput("event_types", f"must be exact for a batch endpoint, got {pattern!r}")


def _check_codes(field: str, codes: Iterable[str]) -> None:
    """Codes are written to deliveries and logs, so they must be short."""
    for code in codes:
        if not _CODE.fullmatch(code):
            raise InvalidInput(
                field, f"{code[:100]!r} is not a valid code; codes are 1 to 100 printable ASCII characters"
            )


def check_signing(signing: str) -> None:
    if signing not in _SIGNINGS:
        raise InvalidInput("signing", f"must be {' or '.join(_SIGNINGS)}, got {signing!r}")


def _check_numbers(form: EndpointForm, timeout_seconds_max: float) -> None:
    check_bounds("timeout_seconds", form.timeout_seconds, (rules.TIMEOUT_SECONDS[0], timeout_seconds_max))
    check_bounds("concurrency_max", form.concurrency_max, rules.CONCURRENCY)
    check_bounds("rate_per_second", form.rate_per_second, rules.RATE)
    check_bounds("circuit.failures_max", form.circuit.failures_max, rules.FAILURES)
    check_bounds("circuit.probe_seconds_min", form.circuit.probe_seconds_min, rules.PROBE_SECONDS)
    check_bounds("circuit.open_seconds", form.circuit.open_seconds, rules.OPEN_SECONDS)
    check_bounds("circuit.disable_after_seconds", form.circuit.disable_after_seconds, rules.DISABLE_AFTER_SECONDS)
    if form.slo is not None:
        check_slo(form.slo, "slo.")


def check_slo(slo: Slo, where: str = "") -> None:
    """Raise InvalidInput for a target that has no error budget or can never be missed."""
    check_bounds(f"{where}success", slo.success, rules.SUCCESS)
    check_bounds(f"{where}p95_seconds", slo.p95_seconds, rules.P95_SECONDS)
    check_bounds(f"{where}oldest_seconds", slo.oldest_seconds, rules.OLDEST_SECONDS)


def check_bounds(field: str, value: float | None, bounds: tuple[float, float]) -> None:
    """Raise InvalidInput for a value outside these bounds. None is valid."""
    low, high = bounds
    if value is not None and not low <= value <= high:
        raise InvalidInput(field, f"must be from {low:.15g} to {high:.15g}, got {value:.15g}")


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or not value.isprintable():
        raise InvalidInput("headers", f"{name[:100]!r} is not a valid header; names and values must be plain text")
    if not value.strip():  # the HTTP client would leave the header out
        raise InvalidInput("headers", f"{name[:100]!r} must have a value; leave the header out if it needs none")
    if name.lower().startswith(_RESERVED_HEADERS[0]) or name.lower() in _RESERVED_HEADERS:
        raise InvalidInput("headers", f"{name!r} is set by Doorstep and cannot be changed")


class HandlerFields(TypedDict, total=False):
    """The settings that every endpoint can have; None means the default."""

    description: str | None
    """The purpose of the endpoint, shown to people."""
    policy: PolicyForm | None
    policy_by_event_type: Mapping[str, PolicyForm] | None
    timeout_seconds: float | None
    concurrency_max: int | None
    rate_per_second: float | None
    retry_on: Sequence[str]
    """Codes or HTTP statuses that are retried even though they are permanent errors; `*` retries all errors."""
    give_up_on: Sequence[str]
    code_map: Mapping[str, str] | None
    """Translates a carrier's error codes into Doorstep's."""
    circuit: CircuitRules | Mapping[str, object] | None
    """Also as a mapping, such as `{"enabled": False}`."""
    slo: Slo | Mapping[str, object] | None
    """The share of deliveries that must succeed, and how soon."""
    batch: bool
    """Whether the endpoint's events are batches; see `Doorstep.batch`."""


class DeclaredFields(HandlerFields, total=False):
    """The additional settings of an endpoint that is declared with its handler; see `Doorstep.handler`."""

    name: str | None
    org_id: UUID
    isolated: bool
    memory_mb_max: int | None


class EndpointFields(HandlerFields, total=False):
    """The additional settings of an endpoint that is not declared with its handler."""

    destination: Destination | Mapping[str, object] | None
    """The destination, such as `{"kind": "http", "url": "https://…"}`; `url` and `handler` are short forms for two of
    the kinds."""
    url: str | None
    handler: str | None
    event_types: Sequence[str]
    headers: Mapping[str, str] | None
    envelope: bool
    signing: str
    secret: str | None
    """The signing secret, if receivers already have one (`whsec_…`, or `whsk_…` for `v1a`)."""


def form_from(name: str, fields: Mapping[str, object]) -> EndpointForm:
    """Build the form of an endpoint from its `EndpointFields`."""
    for field in fields:
        if field not in EndpointForm.__struct_fields__:
            raise InvalidInput(
                field, f"is not a setting of an endpoint; use one of {', '.join(EndpointForm.__struct_fields__[1:])}"
            )
    given = {field: _copied(value) for field, value in fields.items() if value is not None}
    for field, convert in _FROM_MAPPINGS.items():
        if isinstance(given.get(field), Mapping):
            given[field] = convert(given[field])
    return EndpointForm(name=name, **given)


_UNSET = EndpointForm(name="")


def with_defaults(form: EndpointForm, defaults: EndpointForm, names: Sequence[str]) -> EndpointForm:
    """The form with the program's defaults (the fields `names` of `defaults`) in the fields that have none of their
    own: those that equal the general default."""
    missing = [name for name in names if getattr(form, name) == getattr(_UNSET, name)]
    return msgspec.structs.replace(form, **{name: getattr(defaults, name) for name in missing})


def _converted(field: str, given: object, kind: Any) -> Any:
    """A plain value as an instance of a type of a request. An error says the same as over HTTP."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        found = from_msgspec(str(error), kind)
        inner = "" if found.field == "body" else found.field if found.field[0] == "[" else f".{found.field}"
        raise InvalidInput(field + inner, found.message) from None


_FROM_MAPPINGS: dict[str, Callable[[Any], object]] = {
    "destination": destination_from,
    "circuit": lambda given: CircuitRules(**msgspec.structs.asdict(_converted("circuit", given, rules.CircuitRulesIn))),
    "slo": lambda given: Slo(**msgspec.structs.asdict(_converted("slo", given, rules.SloIn))),
}
"""The fields that a program may also give as a mapping, in the form that they have over HTTP."""


def check_event_types(event_types: Sequence[object]) -> None:
    """Raise InvalidInput if a decorator was used without parentheses: it then receives the function instead of event
    types."""
    for event_type in event_types:
        if not isinstance(event_type, str):
            raise InvalidInput("event_types", f"must be text such as 'order.*', got {event_type!r}")


def check_handler(what: str, function: Any) -> None:
    """Raise ConfigError for a handler that would fail on every call, or that would appear to succeed without
    running."""
    check_callable(what, function)
    check_parameters(what, function)


def check_function(what: str, function: Any) -> None:
    """Like `check_handler`, for a function of one argument that is not an event."""
    check_callable(what, function)
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(f"{what} must take one argument, got {signature}") from None


def check_callable(what: str, function: Any) -> None:
    """Raise ConfigError for anything but a function, and for a generator function, which would never run."""
    if not callable(function):
        raise ConfigError(f"{what} must be a function, got {function!r:.100}")
    if any(map(_is_generator, (function, getattr(type(function), "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{what} contains a yield, so a call would run nothing; use return instead")


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _copied(value: object) -> Any:
    """Turn a list into a tuple, because the caller could still change the list. Other values are returned unchanged."""
    return tuple(value) if isinstance(value, list) else value
