"""What is wrong with a field, worded once, whichever parser found it: msgspec on the hot routes, pydantic elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class FieldError(NamedTuple):
    field: str
    message: str


UNKNOWN = "is not known here; remove it"
_REQUIRED = "is required"
TIME = "must be a time such as 2026-01-31T12:00:00Z"
BRANCH = "\0"
"""Begins the name of a branch of a choice in pydantic's path to a field: no part of the request is called so."""

_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "uuid": "a UUID",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}
"""By msgspec's names, in the words of JSON."""


# -- msgspec -----------------------------------------------------------------------------------------------------

_AT = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `(.+?)`(?:, got `(.+)`)?$")
_BOUND = re.compile(r"^Expected `\w+`( of length)? (<=|>=) (\S+)$")
_UNREADABLE = {"Invalid UUID": "must be a UUID", "Invalid RFC3339 encoded datetime": TIME}


def from_msgspec(sentence: str) -> FieldError:
    """msgspec's sentence, taken apart: the path to the field, and a message."""
    at = _AT.search(sentence)
    path, rest = (at[1].replace("[...]", ""), sentence[: at.start()]) if at else ("", sentence)
    if about := _FIELD.match(rest):
        return FieldError(f"{path}.{about[2]}".lstrip("."), _REQUIRED if about[1][0] == "m" else UNKNOWN)
    return FieldError(path or "body", _message(rest))


def _message(rest: str) -> str:
    if expected := _EXPECTED.match(rest):
        return _must_be(expected[1], expected[2])
    if bound := _BOUND.match(rest):
        verb, unit = ("have", " characters") if bound[1] else ("be", "")
        return f"must {verb} {'at most' if bound[2] == '<=' else 'at least'} {bound[3]}{unit}"
    return _UNREADABLE.get(rest) or rest[:1].lower() + rest[1:].replace("`", "")


def _must_be(wanted: str, got: str | None) -> str:
    return f"must be {_words(wanted)}" + (f", got {_words(got)}" if got else "")


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))


# -- pydantic ----------------------------------------------------------------------------------------------------

_WANTED = {
    "string_type": "str",
    "int_type": "int",
    "int_parsing": "int",
    "int_from_float": "int",
    "float_type": "float",
    "float_parsing": "float",
    "bool_type": "bool",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "uuid_type": "uuid",
}
_GIVEN = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object", type(None): "null"}
_RULES = {
    "missing": _REQUIRED,
    "extra_forbidden": UNKNOWN,
    "uuid_parsing": "must be a UUID",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match {pattern}",
}


def from_pydantic(finding: Mapping[str, Any]) -> FieldError:
    """The same of one of pydantic's findings."""
    return FieldError(_path(finding["loc"]), _message_of(finding["type"], finding))


def _message_of(kind: str, finding: Mapping[str, Any]) -> str:
    if kind in _WANTED:
        return _must_be(_WANTED[kind], _GIVEN.get(type(finding["input"])))
    if kind == "literal_error":
        return one_of(re.findall(r"'(\w+)'", finding["ctx"]["expected"]) or ["true"])
    rule = _RULES.get(kind)
    return finding["msg"] if rule is None else rule.format(**finding.get("ctx", {}))


def one_of(choices: Sequence[str]) -> str:
    return f"must be one of {', '.join(choices)}" if len(choices) > 1 else f"must be {choices[0]}"


def _path(location: Sequence[str | int]) -> str:
    """`("body", "circuit", "failures_max")` as it stands in the request: `circuit.failures_max`."""
    real = [part for part in location[1:] if not str(part).startswith(BRANCH)]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in real]
    return "".join(parts).lstrip(".") or str(location[0])
