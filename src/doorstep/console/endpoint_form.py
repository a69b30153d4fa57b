"""The form of an endpoint, read: what somebody entered, as the engine takes it.

Inputs are named as the API names the fields, so that whatever is refused can be shown beside its input. Of an endpoint
that exists only what was changed is read: what nobody touched stays exactly as it was, and the audit log names the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from doorstep.console.endpoint_texts import KEPT, OWN, texts_of
from doorstep.console.fields import Fields
from doorstep.console.retry_words import delays_from_text, policy_from_text, span_from_text
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules
from doorstep.model.retry_policy import RetryPolicy
from doorstep.model.slo import Slo
from doorstep.path.enrol import EndpointForm, PolicyForm

Number = TypeVar("Number", int, float)

_LARGEST = 10**15
"""Where the form reads a number, the engine judges it."""
Known = Mapping[str, str]
"""The headers that the endpoint has already."""


def new_form(fields: Fields) -> EndpointForm:
    """A new endpoint, as it was described."""
    return EndpointForm(**{name: read(fields, {}) for name, read in _READERS.items()})


def changes_of(fields: Fields, before: EndpointForm) -> dict[str, Any]:
    """What was changed of an endpoint, as Registrar.change takes it."""
    shown = texts_of(before)
    touched = {name for name, value in texts_in(fields).items() if value != shown.get(name, "")}
    return {
        name: read(fields, before.headers)
        for name, read in _READERS.items()
        if name != "signing" and touched.intersection(_INPUTS.get(name, (name,)))
    }


def texts_in(fields: Fields) -> dict[str, str]:
    """What was entered, for every input of the form."""
    return {name: _plain(fields.text(name) or "") for name in _inputs()}


def flawed_input(error: InvalidInput) -> str:
    """The input that an error is about: the field itself, or the one that it is a part of."""
    parts = error.field.split(".")
    wider = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in wider if name in _inputs()), "")


def _inputs() -> set[str]:
    return {name for inputs in _INPUTS.values() for name in inputs} | set(_READERS)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


# -- what it means -----------------------------------------------------------------------------------------------


def _target(fields: Fields, kind: str) -> str | None:
    return fields.text(kind) if (fields.text("kind") or "url") == kind else None


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """One on each line."""
    return tuple(line.strip() for line in (fields.text(name) or "").splitlines() if line.strip())


def _pairs(fields: Fields, name: str, sign: str) -> Iterator[tuple[str, str]]:
    for line in _texts(fields, name):
        left, found, right = line.partition(sign)
        if not found or not left.strip():
            raise InvalidInput(name, f"{line[:60]!r} cannot be read; write one on each line, such as name {sign} value")
        yield left.strip(), right.strip()


def _headers(fields: Fields, known: Known) -> dict[str, str]:
    headers = dict(_pairs(fields, "headers", ":"))
    unknown = next((name for name, value in headers.items() if value == KEPT and name not in known), None)
    if unknown is not None:
        raise InvalidInput("headers", f"{unknown[:100]!r} has no value yet that could be kept; give one")
    return {name: known[name] if value == KEPT else value for name, value in headers.items()}


def _policy(fields: Fields) -> PolicyForm | None:
    name = fields.text("policy")
    if name != OWN:
        return name
    jitter = fields.number("policy.jitter", 0, 100)
    return RetryPolicy(
        delays_from_text("policy.delays", fields.text("policy.delays") or ""),
        RetryPolicy(()).jitter if jitter is None else _share(jitter),
        _span(fields, "policy.deadline_seconds"),
    )


def _policies(fields: Fields) -> dict[str, PolicyForm]:
    name = "policy_by_event_type"
    return {pattern: policy_from_text(name, text) for pattern, text in _pairs(fields, name, "=")}


def _circuit(fields: Fields) -> CircuitRules:
    """What was left out is as usual; a 0 that was entered is not, and the engine says so."""
    usual = CircuitRules()
    return CircuitRules(
        _known(_whole(fields, "circuit.failures_max"), usual.failures_max),
        _known(_span(fields, "circuit.open_seconds"), usual.open_seconds),
        _known(_span(fields, "circuit.disable_after_seconds"), usual.disable_after_seconds),
    )


def _known(value: Number | None, usual: Number) -> Number:
    return usual if value is None else value


def _slo(fields: Fields) -> Slo | None:
    """Without any of it, that of the organization counts."""
    success = fields.number("slo.success", 0, 100)
    spans = {name: _span(fields, f"slo.{name}") for name in ("p95_seconds", "oldest_seconds")}
    given = {name: value for name, value in spans.items() if value is not None}
    if success is not None:
        given["success"] = _share(success)
    return Slo(**given) if given else None


def _share(percent: float) -> float:
    """Without the noise of the division: 99.9 % is 0.999."""
    return round(percent / 100, 12)


def _span(fields: Fields, name: str) -> float | None:
    text = fields.text(name)
    return None if text is None else span_from_text(name, text)


def _whole(fields: Fields, name: str) -> int | None:
    return fields.whole(name, 0, _LARGEST)


_READERS: dict[str, Callable[[Fields, Known], Any]] = {
    "name": lambda fields, _: fields.text("name") or "",
    "url": lambda fields, _: _target(fields, "url"),
    "handler": lambda fields, _: _target(fields, "handler"),
    "event_types": lambda fields, _: _texts(fields, "event_types"),
    "policy": lambda fields, _: _policy(fields),
    "policy_by_event_type": lambda fields, _: _policies(fields),
    "timeout_seconds": lambda fields, _: _span(fields, "timeout_seconds"),
    "concurrency_max": lambda fields, _: _whole(fields, "concurrency_max"),
    "rate_per_second": lambda fields, _: fields.number("rate_per_second", 0, _LARGEST),
    "headers": _headers,
    "retry_on": lambda fields, _: _texts(fields, "retry_on"),
    "give_up_on": lambda fields, _: _texts(fields, "give_up_on"),
    "code_map": lambda fields, _: dict(_pairs(fields, "code_map", "=")),
    "circuit": lambda fields, _: _circuit(fields),
    "slo": lambda fields, _: _slo(fields),
    "envelope": lambda fields, _: fields.flag("envelope"),
    "batch": lambda fields, _: fields.flag("batch"),
    "signing": lambda fields, _: fields.text("signing") or "v1",
}
"""Every field of EndpointForm."""
_INPUTS: dict[str, tuple[str, ...]] = {
    "url": ("kind", "url"),
    "handler": ("kind", "handler"),
    "policy": ("policy", "policy.delays", "policy.jitter", "policy.deadline_seconds"),
    "circuit": ("circuit.failures_max", "circuit.open_seconds", "circuit.disable_after_seconds"),
    "slo": ("slo.success", "slo.p95_seconds", "slo.oldest_seconds"),
}
"""The inputs of those fields that have others than one of their own name."""
