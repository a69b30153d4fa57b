"""Describes values of a wrong shape in the terms of JSON. The API and the library use the same sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from doorstep.schemas.shape import FieldProblem

UNKNOWN = "is unknown; remove it"
REQUIRED = "is required"
TIME = "must be a time such as 2026-01-31T12:00:00Z"

_TYPE_NAMES = {
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
"""Maps msgspec's type names to JSON's."""

_AT = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `(.+?)`(?:, got `(.+)`)?$")
_BOUND = re.compile(r"^Expected `(\w+)`( of length)? (<=|>=) (\S+)$")
_MATCHING = re.compile(r"^Expected `str` matching regex '(.*)'$")
_UNREADABLE = {"Invalid UUID": "must be a UUID", "Invalid RFC3339 encoded datetime": TIME}


def from_msgspec(sentence: str, kind: Any = None) -> FieldProblem:
    """Convert an msgspec error into the path of a field and a message. `kind` is the expected type; the message takes
    the allowed values from it."""
    at = _AT.search(sentence)
    path, rest = (at[1], sentence[: at.start()]) if at else ("", sentence)
    shown = path.replace("[...]", "")
    if about := _FIELD.match(rest):
        return FieldProblem(f"{shown}.{about[2]}".lstrip("."), REQUIRED if about[1][0] == "m" else UNKNOWN)
    return FieldProblem(shown or "body", _message(rest, lambda: list(_forms_at(kind, path))))


def _message(rest: str, forms: Callable[[], list[Any]]) -> str:
    if expected := _EXPECTED.match(rest):
        own = [form["expected"] for form in forms() if isinstance(form, dict)]
        return f"must be {own[0]}" if own else _must_be(expected[1], expected[2])
    if bound := _BOUND.match(rest):
        return _out_of_bounds(*bound.groups())
    if matching := _MATCHING.match(rest):
        return f"must match {matching[1]}"
    if rest.startswith("Invalid enum value"):
        choices = [value for form in forms() if get_origin(form) is Literal for value in get_args(form)]
        return f"must be one of {', '.join(choices)}" if len(choices) > 1 else f"must be {choices[0]}"
    return _UNREADABLE.get(rest) or rest[:1].lower() + rest[1:].replace("`", "")


def _out_of_bounds(kind: str, length: str | None, sign: str, bound: str) -> str:
    verb, unit = ("have", " characters" if kind == "str" else " items") if length else ("be", "")
    return f"must {verb} {'at most' if sign == '<=' else 'at least'} {bound.removesuffix('.0')}{unit}"


def _must_be(wanted: str, got: str | None) -> str:
    """The message about a wrong type. It does not suggest null, which is never what the caller wants."""
    types = [name for name in wanted.split(" | ") if name != "null"] or ["null"]
    return f"must be {_type_names(types)}" + (f", got {_type_names([got])}" if got else "")


def _type_names(types: Iterable[str]) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in types)


# -- the types of a field --------------------------------------------------------------------------------


def _forms_at(kind: Any, path: str) -> Iterator[Any]:
    """The possible types of the field at a path, and the `extra` dictionaries from its annotations."""
    kinds = [kind]
    for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", path):
        kinds = [inner for outer in kinds for form in _forms(outer) for inner in _inside(form, part)]
    for one in kinds:
        yield from _forms(one)


def _forms(kind: Any) -> Iterator[Any]:
    """The alternatives of a type."""
    if get_origin(kind) is Annotated:
        yield from (meta.extra for meta in kind.__metadata__ if meta.extra)
        yield from _forms(kind.__origin__)
    elif get_origin(kind) in (None, Literal, tuple, list, dict):
        yield kind
    else:
        for one in get_args(kind):
            yield from _forms(one)


def _inside(form: Any, part: str) -> Iterator[Any]:
    if get_origin(form) in (tuple, list, dict):
        yield get_args(form)[1 if get_origin(form) is dict else 0]
    elif isinstance(form, type) and issubclass(form, msgspec.Struct):
        hints = get_type_hints(form, include_extras=True)
        yield from (hints[part],) if part in hints else ()
