"""Before the first step: what a program says about an endpoint, made into the form that is judged."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import UUID

from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.endpoint import CircuitRules
from doorstep.model.slo import Slo
from doorstep.path.enrol import EndpointForm, PolicyForm


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
