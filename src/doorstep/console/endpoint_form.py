"""The endpoint form: formats settings as text, parses them back, and describes retry policies in words. No I/O.

The inputs come from the table in `schemas/endpoints.py` and are named like the fields of the API, so that an error can
be shown beside its input. For an existing endpoint only the changed inputs are parsed. The other settings stay exactly
as they were, and the audit log names only the changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from doorstep.clock import Instant, seconds
from doorstep.console.fields import Fields, parsed, span_from_text
from doorstep.console.formatting import lasting, span_text
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint, RetryPolicy, Slo
from doorstep.model.org import Org
from doorstep.operations.endpoint_rules import EndpointForm, PolicyForm, destination_from
from doorstep.policy.retry import BUILT_IN, capped
from doorstep.schemas.endpoints import DESTINATIONS, INPUTS, Input, InputKind

OWN = "own"
"""The option for a policy with custom delays."""
KEPT = "***"
"""A placeholder that the form shows instead of the value of an existing header. If the user leaves it in place, the
header keeps its value."""
_JITTER = RetryPolicy(()).jitter
_LARGEST = 10**15
"""The largest number that the form accepts. The endpoint service checks the actual bounds."""
_KIND = "destination"
"""The input that selects the kind of destination. The kind determines which other inputs apply."""
Known = Mapping[str, str]
"""The endpoint's current headers."""


def inputs_by_section() -> dict[str, list[Input]]:
    sections: dict[str, list[Input]] = {}
    for one in INPUTS:
        sections.setdefault(one.section, []).append(one)
    return sections


# -- settings to texts -------------------------------------------------------------------------------------------


def texts_of(form: EndpointForm) -> dict[str, str]:
    """The text of every input for these settings. An empty text means the default."""
    texts = {one.name: _text(one, form) for one in INPUTS if one.field != "policy" and one.name != _KIND}
    return {_KIND: _kind_of(form), **texts, **_policy_texts(form.policy)}


def _kind_of(form: EndpointForm) -> str:
    if form.destination is not None:
        return form.destination.kind
    return "http" if form.handler is None else "handler"


def _text(one: Input, form: EndpointForm) -> str:
    value: Any = form
    for part in one.name.split("."):
        value = None if value is None else getattr(value, part, None)  # the fields depend on the kind of destination
    return "" if value is None else _TEXTS[one.kind](value)


def _one_line(text: str) -> str:
    """Remove line breaks, as browsers do in a one-line input. Otherwise a text that the user did not touch would look
    changed."""
    return "".join(text.splitlines()).strip()


def policy_text(policy: PolicyForm) -> str:
    """A policy as text that `policy_from_text` can parse."""
    if not isinstance(policy, RetryPolicy):
        return str(policy)
    if BUILT_IN.get(policy.name) == policy:
        return policy.name
    jitter = "" if policy.jitter == _JITTER else f"; jitter {100 * policy.jitter:.12g}%"
    deadline = "" if policy.deadline_seconds is None else f"; deadline {span_text(policy.deadline_seconds)}"
    recovery = "; recovery" if policy.retry_on_recovery else ""
    manual = "; manual" if policy.manual else ""
    return f"{delays_text(policy)}{jitter}{deadline}{recovery}{manual}"


def delays_text(policy: RetryPolicy) -> str:
    return ", ".join(map(span_text, policy.delays))


def _lines(sign: str, pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}{sign}{value}" for name, value in pairs.items())


_TEXTS: dict[InputKind, Callable[[Any], str]] = {
    "line": _one_line,
    "text": str,
    "lines": "\n".join,
    "number": "{:.15g}".format,
    "whole": "{:.15g}".format,
    "span": span_text,
    "percent": lambda value: f"{100 * value:.12g}",
    "tick": lambda value: "yes" if value else "",
    "pairs": lambda value: _lines(" = ", value),
    "headers": lambda value: _lines(": ", dict.fromkeys(value, KEPT)),
    "policies": lambda value: _lines(" = ", {key: policy_text(one) for key, one in value.items()}),
    "signing": str,
    "secret": lambda value: "",
}


def _policy_texts(policy: PolicyForm | None) -> dict[str, str]:
    if not isinstance(policy, RetryPolicy) or BUILT_IN.get(policy.name) == policy:
        return {"policy": "" if policy is None else policy_text(policy)}
    deadline = policy.deadline_seconds
    return {
        "policy": OWN,
        "policy.delays": delays_text(policy),
        "policy.jitter": _TEXTS["percent"](policy.jitter),
        "policy.deadline_seconds": "" if deadline is None else span_text(deadline),
        "policy.retry_on_recovery": _TEXTS["tick"](policy.retry_on_recovery),
        "policy.manual": _TEXTS["tick"](policy.manual),
        "policy.ignore_retry_after": _TEXTS["tick"](policy.ignore_retry_after),
    }


# -- texts to settings -------------------------------------------------------------------------------------------


def new_form(fields: Fields) -> EndpointForm:
    """The settings of a new endpoint."""
    return EndpointForm(**{name: _value(name, fields, {}) for name in _INPUTS_OF})


def changes_of(fields: Fields, before: EndpointForm) -> dict[str, Any]:
    """The changed settings, in the form that `EndpointService.update` expects."""
    shown = texts_of(before)
    touched = {name for name, value in texts_in(fields).items() if value != _plain(shown.get(name, ""))}
    changes = {
        name: _value(name, fields, before.headers)
        for name, inputs in _INPUTS_OF.items()
        if name not in ("signing", "secret") and touched.intersection(inputs)
    }
    if changes.get(_KIND, ...) is None:  # the destination is set by its short form, the field `url` or `handler`
        del changes[_KIND]
    return changes


def texts_in(fields: Fields) -> dict[str, str]:
    """The entered text of every input."""
    return {one.name: _plain(fields.text(one.name) or "") for one in INPUTS}


def flawed_input(error: InvalidInput) -> str:
    """The name of the input beside which an error is shown. If the field that the error names has no input, an
    enclosing field's input is used."""
    parts = error.field.split(".")
    wider = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    names = {one.name for one in INPUTS}
    return next((name for name in wider if name in names), "")


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _value(name: str, fields: Fields, known: Known) -> Any:
    """The value of one field of EndpointForm, read from the inputs that belong to this field."""
    match name:
        case "url" | "handler":
            return fields.text(name) if DESTINATIONS[_chosen_kind(fields)].short == name else None
        case "destination":
            kind = _chosen_kind(fields)
            return None if DESTINATIONS[kind].short else destination_from({"kind": kind} | _parts(name, fields))
        case "headers":
            return _headers(fields, known)
        case "policy":
            return _policy(fields)
        case "circuit":
            return CircuitRules(**_parts(name, fields))
        case "slo":
            given = _parts(name, fields)
            return Slo(**given) if given else None  # without its own target, the organization's applies
    (one,) = (one for one in INPUTS if one.name == name)
    return _READERS[one.kind](fields, name)


def _chosen_kind(fields: Fields) -> str:
    kind = fields.text(_KIND) or "http"
    if kind not in DESTINATIONS:
        raise InvalidInput(_KIND, f"must be one of {', '.join(DESTINATIONS)}, got {kind[:60]!r}")
    return kind


def _parts(name: str, fields: Fields) -> dict[str, Any]:
    """The entered values of a field with several inputs. An empty input means the default. A 0 does not mean the
    default: the endpoint service rejects it."""
    parts = {one.name: _READERS[one.kind](fields, one.name) for one in INPUTS if one.name.startswith(f"{name}.")}
    return {part.partition(".")[2]: value for part, value in parts.items() if value is not None}


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """The non-empty lines of the text."""
    return tuple(line.strip() for line in (fields.text(name) or "").splitlines() if line.strip())


def _pairs(fields: Fields, name: str, sign: str = "=") -> Iterator[tuple[str, str]]:
    for line in _texts(fields, name):
        left, found, right = line.partition(sign)
        if not found or not left.strip():
            raise InvalidInput(name, f"{line[:60]!r} cannot be read; write one per line, such as name {sign} value")
        yield left.strip(), right.strip()


def _headers(fields: Fields, known: Known) -> dict[str, str]:
    headers = dict(_pairs(fields, "headers", ":"))
    unknown = next((name for name, value in headers.items() if value == KEPT and name not in known), None)
    if unknown is not None:
        raise InvalidInput("headers", f"{unknown[:100]!r} is new and has no value to keep; enter one")
    return {name: known[name] if value == KEPT else value for name, value in headers.items()}


def _policy(fields: Fields) -> PolicyForm | None:
    name = fields.text("policy")
    if name != OWN:
        return name
    jitter = fields.percent("policy.jitter")
    return RetryPolicy(
        delays_from_text("policy.delays", fields.text("policy.delays") or ""),
        _JITTER if jitter is None else jitter,
        fields.span("policy.deadline_seconds"),
        retry_on_recovery=fields.flag("policy.retry_on_recovery"),
        manual=fields.flag("policy.manual"),
        ignore_retry_after=fields.flag("policy.ignore_retry_after"),
    )


_READERS: dict[InputKind, Callable[[Fields, str], Any]] = {
    "line": lambda fields, name: fields.text(name) or "",
    "text": lambda fields, name: _plain(fields.text(name) or ""),
    "lines": _texts,
    "number": lambda fields, name: fields.number(name, 0, _LARGEST),
    "whole": lambda fields, name: fields.whole(name, 0, _LARGEST),
    "span": Fields.span,
    "percent": Fields.percent,
    "tick": lambda fields, name: fields.flag(name),
    "pairs": lambda fields, name: dict(_pairs(fields, name)),
    "policies": lambda fields, name: {key: policy_from_text(name, text) for key, text in _pairs(fields, name)},
    "signing": lambda fields, name: fields.text(name) or "v1",
    "secret": lambda fields, name: fields.text(name) or None,
}
_INPUTS_OF: dict[str, list[str]] = {}
"""For each field, the names of its inputs."""
for _one in INPUTS:
    _INPUTS_OF.setdefault(_one.field, [_KIND] if _one.field in ("url", "handler") else []).append(_one.name)


# -- policies in words -------------------------------------------------------------------------------------------


class InForce(NamedTuple):
    """A policy that applies to some event types of an endpoint."""

    event_types: str
    policy: RetryPolicy
    origin: str


def in_force(endpoint: Endpoint, org: Org | None, standard: RetryPolicy, retries_max: int) -> list[InForce]:
    """All policies that apply to an endpoint, the most specific first."""
    levels = [(endpoint.policy_by_event_type, endpoint.policy, "endpoint"), ({}, standard, "installation")]
    if org is not None:
        levels.insert(1, (org.policy_by_event_type, org.policy, "organization"))
    found: list[InForce] = []
    for by_event_type, policy, origin in levels:
        longest_first = sorted(by_event_type, key=lambda pattern: (-len(pattern), pattern))
        found += [InForce(pattern, capped(by_event_type[pattern], retries_max), origin) for pattern in longest_first]
        if policy is not None:
            found.append(InForce("*", capped(policy, retries_max), origin))
            break
    return found


def in_words(policy: RetryPolicy) -> str:
    """`Immediately, then after 1 min, 5 min and 15 min: 4 attempts within 21 min. Delays vary by 10%.`"""
    if not policy.delays:
        waits = "wait in the retry queue for an operator" if policy.manual else "become dead letters"
        return f"One attempt. Failures are not retried automatically; they {waits}."
    attempts = f"{len(policy.delays) + 1} attempts"
    if not any(policy.delays):
        return f"{attempts}, one right after another." + _deadline(policy)
    delays = [_duration(delay) for delay in policy.delays]
    whole = _duration(sum(policy.delays))
    vary = f" Delays vary by {policy.jitter:.0%}." if policy.jitter else ""
    early = " Sooner when the receiver is back." if policy.retry_on_recovery else ""
    return f"Immediately, then after {_listed(delays)}: {attempts} within {whole}.{vary}{early}{_deadline(policy)}"


def _deadline(policy: RetryPolicy) -> str:
    if policy.deadline_seconds is None:
        return ""
    return f" No attempt later than {_duration(policy.deadline_seconds)} after the event was due."


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _duration(span_seconds: float) -> str:
    span: Instant = seconds(span_seconds)
    return lasting(span) if span else "no delay"


# -- texts to policies -------------------------------------------------------------------------------------------


def policy_from_text(field: str, text: str) -> PolicyForm:
    """Parse a name, or delays with options: `5s, 5m, 2h; jitter 20%; deadline 1d; recovery`."""
    delays, *rest = (part.strip() for part in text.split(";"))
    if delays in BUILT_IN and not rest:
        return delays
    if delays.isidentifier():
        raise InvalidInput(
            field, f"there is no policy {delays[:40]!r}; known are {', '.join(BUILT_IN)}, or give delays"
        )
    options = dict(_option(field, part) for part in rest)
    return RetryPolicy(delays_from_text(field, delays), **options)


def _option(field: str, part: str) -> tuple[str, Any]:
    match part.partition(" "):
        case "recovery", "", _:
            return "retry_on_recovery", True
        case "manual", "", _:
            return "manual", True
        case "exact", "", _:
            return "ignore_retry_after", True
        case "deadline", _, value:
            return "deadline_seconds", span_from_text(field, value)
        case "jitter", _, value:
            return "jitter", _jitter(field, value)
    raise InvalidInput(
        field, f"{part[:40]!r} is not an option; the options are jitter, deadline, recovery, manual and exact"
    )


def _jitter(field: str, text: str) -> float:
    """`20%`, or `0.2`."""
    rule = f"{text[:40]!r} is not a jitter; write a percentage such as 20%"
    share = parsed(field, text.strip().removesuffix("%"), float, rule)
    return round(share / (100 if text.strip().endswith("%") else 1), 12)


def delays_from_text(field: str, text: str) -> tuple[float, ...]:
    """Parse a list of delays. An empty text means that failures are never retried."""
    return tuple(span_from_text(field, part) for part in re.split(r"[,\s]+", text.strip()) if part)
