"""Before the first step: an endpoint is described by someone, checked, and sealed into the form that is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint, SigningSecret
from doorstep.model.noun import Noun
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.directory import seal_headers, seal_secret
from doorstep.policy.retry import BUILT_IN, named
from doorstep.sealing import Sealer
from doorstep.stores.text import check_storable
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.signature import new_secret

PolicyForm = RetryPolicy | str | Sequence[float]
"""A policy's name, its delays, or the policy itself."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
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
_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}\*?|\*")
_DELAY_SECONDS_MAX = 30 * 86_400
_DEADLINE_SECONDS_MAX = 366 * 86_400


class EndpointForm(Noun, frozen=True, kw_only=True):
    """An endpoint as its owner describes it."""

    name: str
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


def enrol(
    form: EndpointForm,
    *,
    endpoint_id: UUID,
    org_id: UUID,
    now: Instant,
    sealer: Sealer,
    guard: AddressGuard,
    timeout_seconds_max: float,
    standard: RetryPolicy = BUILT_IN["standard"],
) -> tuple[Endpoint, str]:
    """The endpoint, and its signing secret: the only time that it can be seen."""
    check(form, timeout_seconds_max)
    secret = new_secret()
    endpoint = Endpoint(
        endpoint_id=endpoint_id,
        org_id=org_id,
        name=form.name,
        created_at=now,
        url=None if form.url is None else guard.check_url(form.url).url,
        handler=form.handler,
        event_types=form.event_types,
        policy=None if form.policy is None else policy_from(form.policy, standard),
        policy_by_event_type={key: policy_from(value, standard) for key, value in form.policy_by_event_type.items()},
        timeout_seconds=form.timeout_seconds,
        concurrency_max=form.concurrency_max,
        rate_per_second=form.rate_per_second,
        sealed_headers=seal_headers(endpoint_id, sealer, dict(form.headers)),
        retry_on=form.retry_on,
        give_up_on=form.give_up_on,
        code_map=dict(form.code_map),
        circuit=form.circuit,
        secrets=(SigningSecret(seal_secret(endpoint_id, sealer, secret)),),
        updated_at=now,
    )
    return endpoint, secret


def policy_from(form: PolicyForm, standard: RetryPolicy = BUILT_IN["standard"]) -> RetryPolicy:
    if isinstance(form, str):
        return named(form, standard)
    policy = form if isinstance(form, RetryPolicy) else RetryPolicy(tuple(form))
    if not all(0 <= delay <= _DELAY_SECONDS_MAX for delay in policy.delays):
        raise InvalidInput("policy", f"delays must be from 0 to {_DELAY_SECONDS_MAX} seconds, got {policy.delays}")
    if not 0 <= policy.jitter <= 1:
        raise InvalidInput("policy", f"jitter must be from 0 to 1, got {policy.jitter}")
    _bounded("policy.deadline_seconds", policy.deadline_seconds, 0, _DEADLINE_SECONDS_MAX)
    return policy


def check(form: EndpointForm, timeout_seconds_max: float) -> None:
    """Refuse what cannot work, naming the field."""
    if not 1 <= len(form.name) <= 200:
        raise InvalidInput("name", f"must be 1 to 200 characters, got {len(form.name)}")
    check_storable("name", form.name)
    check_storable("handler", form.handler)
    if (form.url is None) == (form.handler is None):
        raise InvalidInput("url", "an endpoint has a url or a handler, exactly one of the two")
    if not form.event_types:
        raise InvalidInput("event_types", "must not be empty; use * to take every event")
    for pattern in (*form.event_types, *form.policy_by_event_type):
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput("event_types", f"{pattern!r} is no event type; a * may only stand at the end")
    _check_numbers(form, timeout_seconds_max)
    for name, value in form.headers.items():
        _check_header(name, value)


def _check_numbers(form: EndpointForm, timeout_seconds_max: float) -> None:
    _bounded("timeout_seconds", form.timeout_seconds, 0.1, timeout_seconds_max)
    _bounded("concurrency_max", form.concurrency_max, 1, 10_000)
    _bounded("rate_per_second", form.rate_per_second, 0.001, 100_000)
    _bounded("circuit.failures_max", form.circuit.failures_max, 1, 1_000_000)
    _bounded("circuit.open_seconds", form.circuit.open_seconds, 1, 86_400)
    _bounded("circuit.disable_after_seconds", form.circuit.disable_after_seconds, 60, 365 * 86_400)


def _bounded(field: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidInput(field, f"must be from {low:g} to {high:g}, got {value:g}")


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or not value.isprintable():
        raise InvalidInput("headers", f"{name[:100]!r} is no header that can be sent; names and values are plain text")
    if name.lower().startswith(_OURS[0]) or name.lower() in _OURS:
        raise InvalidInput("headers", f"{name!r} is set by Doorstep and cannot be given")
