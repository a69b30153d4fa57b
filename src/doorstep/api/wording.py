"""What is wrong with a field of a request: msgspec's sentences, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec


class FieldError(NamedTuple):
    field: str
    message: str


UNKNOWN = "is not known here; remove it"
REQUIRED = "is required"
TIME = "must be a time such as 2026-01-31T12:00:00Z"

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

_AT = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_FIELD = re.compile(r"^Object (missing required|contains unknown) field `(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `(.+?)`(?:, got `(.+)`)?$")
_BOUND = re.compile(r"^Expected `(\w+)`( of length)? (<=|>=) (\S+)$")
_MATCHING = re.compile(r"^Expected `str` matching regex '(.*)'$")
_UNREADABLE = {"Invalid UUID": "must be a UUID", "Invalid RFC3339 encoded datetime": TIME}
_CHOICE = "Invalid enum value"


def from_msgspec(sentence: str, kind: Any = None) -> FieldError:
    """The path to the field, and a message. `kind` is the shape that was expected: it knows the choices of a field."""
    at = _AT.search(sentence)
    path, rest = (at[1], sentence[: at.start()]) if at else ("", sentence)
    shown = path.replace("[...]", "")
    if about := _FIELD.match(rest):
        return FieldError(f"{shown}.{about[2]}".lstrip("."), REQUIRED if about[1][0] == "m" else UNKNOWN)
    return FieldError(shown or "body", _message(rest, lambda: list(_forms_at(kind, path))))


def one_of(choices: Sequence[str]) -> str:
    return f"must be one of {', '.join(choices)}" if len(choices) > 1 else f"must be {choices[0]}"


def _message(rest: str, forms: Callable[[], list[Any]]) -> str:
    if expected := _EXPECTED.match(rest):
        own = [form["expected"] for form in forms() if isinstance(form, dict)]
        return f"must be {own[0]}" if own else _must_be(expected[1], expected[2])
    if bound := _BOUND.match(rest):
        return _out_of_bounds(*bound.groups())
    if matching := _MATCHING.match(rest):
        return f"must match {matching[1]}"
    if rest.startswith(_CHOICE):
        return one_of([value for form in forms() if get_origin(form) is Literal for value in get_args(form)])
    return _UNREADABLE.get(rest) or rest[:1].lower() + rest[1:].replace("`", "")


def _out_of_bounds(kind: str, length: str | None, sign: str, bound: str) -> str:
    verb, unit = ("have", " characters" if kind == "str" else " items") if length else ("be", "")
    return f"must {verb} {'at most' if sign == '<=' else 'at least'} {bound.removesuffix('.0')}{unit}"


def _must_be(wanted: str, got: str | None) -> str:
    """That null would do as well helps nobody."""
    types = [name for name in wanted.split(" | ") if name != "null"] or ["null"]
    return f"must be {_words(types)}" + (f", got {_words([got])}" if got else "")


def _words(types: Iterable[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types)


# -- what a shape says of a field --------------------------------------------------------------------------------


def _forms_at(kind: Any, path: str) -> Iterator[Any]:
    """The types that the field at a path may have, and the `extra` of its Meta."""
    kinds = [kind]
    for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", path):
        kinds = [inner for outer in kinds for form in _forms(outer) for inner in _inside(form, part)]
    for one in kinds:
        yield from _forms(one)


def _forms(kind: Any) -> Iterator[Any]:
    """The forms of a type that may have several."""
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
