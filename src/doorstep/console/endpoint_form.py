"""The form of an endpoint: its settings as the texts that the form shows, and read back as the engine takes them.

Inputs are those of the table in `schemas/endpoints.py`, named as the API names the fields, so that whatever is refused
can be shown beside its input. Of an endpoint that exists only what was changed is read: what nobody touched stays exactly
as it was, and the audit log names the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from doorstep.console.fields import Fields
from doorstep.console.policy_text import (
    delays_from_text,
    delays_text,
    policy_from_text,
    policy_text,
    span_from_text,
    span_text,
)
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, RetryPolicy, Slo
from doorstep.operations.endpoint_rules import EndpointForm, PolicyForm
from doorstep.policy.retry import BUILT_IN
from doorstep.schemas.endpoints import INPUTS, Input, InputKind

OWN = "own"
"""The policy whose delays the form gives."""
KEPT = "***"
"""The value of a header that stays as it is: nobody is shown what it is."""
_LARGEST = 10**15
"""Where the form reads a number, the engine judges it."""
_KIND = "kind"
"""The input that says whether the endpoint has a URL or a handler."""
Known = Mapping[str, str]
"""The headers that the endpoint has already."""


def inputs_by_section() -> dict[str, list[Input]]:
    """What the template goes through."""
    sections: dict[str, list[Input]] = {}
    for one in INPUTS:
        sections.setdefault(one.section, []).append(one)
    return sections


# -- shown -------------------------------------------------------------------------------------------------------


def texts_of(form: EndpointForm) -> dict[str, str]:
    """The text of every input. What is not said is an empty text, which stands for the default."""
    texts = {one.name: _text(one, form) for one in INPUTS if one.field != "policy"}
    return {_KIND: "url" if form.handler is None else "handler", **texts, **_policy_texts(form.policy)}


def _text(one: Input, form: EndpointForm) -> str:
    value: Any = form
    for part in one.name.split("."):
        value = None if value is None else getattr(value, part)
    return "" if value is None else _TEXTS[one.kind](value)


_TEXTS: dict[InputKind, Callable[[Any], str]] = {
    "line": lambda value: _one_line(value),
    "text": str,
    "lines": "\n".join,
    "number": lambda value: f"{value:.15g}",
    "whole": lambda value: f"{value:.15g}",
    "span": span_text,
    "percent": lambda value: f"{100 * value:.12g}",
    "tick": lambda value: "yes" if value else "",
    "pairs": lambda value: _lines(" = ", value),
    "headers": lambda value: _lines(": ", dict.fromkeys(value, KEPT)),
    "policies": lambda value: _lines(" = ", {key: _policy_line(one) for key, one in value.items()}),
    "signing": str,
}


def _policy_texts(policy: PolicyForm | None) -> dict[str, str]:
    if not isinstance(policy, RetryPolicy):
        return {"policy": "" if policy is None else str(policy)}
    if BUILT_IN.get(policy.name) == policy:
        return {"policy": policy.name}
    deadline = policy.deadline_seconds
    return {
        "policy": OWN,
        "policy.delays": delays_text(policy),
        "policy.jitter": _TEXTS["percent"](policy.jitter),
        "policy.deadline_seconds": "" if deadline is None else span_text(deadline),
    }


def _policy_line(policy: PolicyForm) -> str:
    return policy_text(policy) if isinstance(policy, RetryPolicy) else str(policy)


def _lines(sign: str, pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}{sign}{value}" for name, value in pairs.items())


def _one_line(text: str) -> str:
    """An input holds no line ends, so that a browser would send it back without them."""
    return "".join(text.splitlines()).strip()


# -- read --------------------------------------------------------------------------------------------------------


def new_form(fields: Fields) -> EndpointForm:
    """A new endpoint, as it was described."""
    return EndpointForm(**{name: _value(name, fields, {}) for name in _INPUTS_OF})


def changes_of(fields: Fields, before: EndpointForm) -> dict[str, Any]:
    """What was changed of an endpoint, as `EndpointService.update` takes it."""
    shown = texts_of(before)
    touched = {name for name, value in texts_in(fields).items() if value != _plain(shown.get(name, ""))}
    return {
        name: _value(name, fields, before.headers)
        for name, inputs in _INPUTS_OF.items()
        if name != "signing" and touched.intersection(inputs)
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
    return {name for inputs in _INPUTS_OF.values() for name in inputs}


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _value(name: str, fields: Fields, known: Known) -> Any:
    """A field of EndpointForm, from the inputs that it is made of."""
    match name:
        case "url" | "handler":
            return fields.text(name) if (fields.text(_KIND) or "url") == name else None
        case "headers":
            return _headers(fields, known)
        case "policy":
            return _policy(fields)
        case "circuit":
            return CircuitRules(**_parts(name, fields))
        case "slo":
            given = _parts(name, fields)
            return Slo(**given) if given else None  # without any of it, that of the organization counts
    (one,) = (one for one in INPUTS if one.name == name)
    return _READERS[one.kind](fields, name)


def _parts(name: str, fields: Fields) -> dict[str, Any]:
    """What was entered of a field with several inputs. What was left out is as usual; a 0 that was entered is not, and the
    engine says so."""
    parts = {one.name: _READERS[one.kind](fields, one.name) for one in INPUTS if one.field == name}
    return {part.partition(".")[2]: value for part, value in parts.items() if value is not None}


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """One on each line."""
    return tuple(line.strip() for line in (fields.text(name) or "").splitlines() if line.strip())


def _pairs(fields: Fields, name: str, sign: str = "=") -> Iterator[tuple[str, str]]:
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
    jitter = _percent(fields, "policy.jitter")
    return RetryPolicy(
        delays_from_text("policy.delays", fields.text("policy.delays") or ""),
        RetryPolicy(()).jitter if jitter is None else jitter,
        _span(fields, "policy.deadline_seconds"),
    )


def _percent(fields: Fields, name: str) -> float | None:
    """As a share, without the noise of the division: 99.9 % is 0.999."""
    percent = fields.number(name, 0, 100)
    return None if percent is None else round(percent / 100, 12)


def _span(fields: Fields, name: str) -> float | None:
    text = fields.text(name)
    return None if text is None else span_from_text(name, text)


_READERS: dict[InputKind, Callable[[Fields, str], Any]] = {
    "line": lambda fields, name: fields.text(name) or "",
    "text": lambda fields, name: _plain(fields.text(name) or ""),
    "lines": _texts,
    "number": lambda fields, name: fields.number(name, 0, _LARGEST),
    "whole": lambda fields, name: fields.whole(name, 0, _LARGEST),
    "span": _span,
    "percent": _percent,
    "tick": lambda fields, name: fields.flag(name),
    "pairs": lambda fields, name: dict(_pairs(fields, name)),
    "policies": lambda fields, name: {key: policy_from_text(name, text) for key, text in _pairs(fields, name)},
    "signing": lambda fields, name: fields.text(name) or "v1",
}
_INPUTS_OF: dict[str, list[str]] = {}
"""The inputs that each field is made of."""
for _one in INPUTS:
    _INPUTS_OF.setdefault(_one.field, [_KIND] if _one.field in ("url", "handler") else []).append(_one.name)
