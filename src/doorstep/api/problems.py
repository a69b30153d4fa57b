"""Every error that the API responds with, as `application/problem+json`. The text of each error is defined once,
here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from doorstep.errors import Conflict, InvalidInput, NotFound, NotRetryable, Overloaded, StoreUnavailable
from doorstep.schemas.shape import FieldProblem

MEDIA_TYPE = "application/problem+json"


class _Row(NamedTuple):
    status: int
    title: str
    detail: str


class Problem(_Row, Enum):
    """A kind of error: its status, its title, and a default for the detail."""

    NOT_RETRYABLE = _Row(400, "Cannot be retried in its current status", "only failed items can be retried")
    INVALID_JSON = _Row(400, "The body is not JSON", "send one JSON value in UTF-8")
    UNAUTHENTICATED = _Row(401, "No valid API key", "send a valid key in the header X-API-Key")
    FORBIDDEN = _Row(403, "Not allowed with this key", "use a key with another role")
    NOT_FOUND = _Row(404, "Not found", "check the path and the id")
    METHOD_NOT_ALLOWED = _Row(405, "Method not allowed", "see the header Allow")
    CONFLICT = _Row(409, "Not possible in its current state", "read it again, then decide")
    TOO_LARGE = _Row(413, "The body is too large", "send less in one request")
    INVALID_INPUT = _Row(422, "Invalid request", "see errors for the field and its rule")
    OVERLOADED = _Row(429, "Too many requests", "nothing was stored; send it again later")
    INTERNAL = _Row(500, "Internal error", "look for the correlation id in the log")
    STORE_UNAVAILABLE = _Row(
        503, "The store is unavailable or cannot write now", "try again later, with the same idempotency key"
    )

    @property
    def urn(self) -> str:
        """A stable name for programs."""
        return f"urn:doorstep:problem:{self.name.lower()}"

    def body(self, detail: str) -> dict[str, object]:
        """The body of a response, without field errors."""
        return {"type": self.urn, "title": self.title, "status": self.status, "detail": detail}


class Refusal(HTTPException):
    """Raised by a route to respond with a problem. It is an HTTPException, because the framework passes such
    exceptions to the registered handler and does not log them as errors."""

    def __init__(
        self,
        problem: Problem,
        detail: str | None = None,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(problem.status, detail or problem.detail, dict(headers or {}))
        self.problem = problem
        self.errors = errors


def refusal_for(error: Exception) -> Refusal:
    """The response for an exception. All exceptions are converted here."""
    match error:
        case Refusal():
            return error
        case InvalidInput():
            return invalid(FieldProblem(error.field, error.message))
        case NotFound():
            return Refusal(Problem.NOT_FOUND, str(error))
        case NotRetryable():
            return Refusal(Problem.NOT_RETRYABLE, str(error))
        case Conflict():
            return Refusal(Problem.CONFLICT, str(error))
        case Overloaded():
            return Refusal(Problem.OVERLOADED, str(error), headers={"Retry-After": str(error.retry_after_seconds)})
        case StoreUnavailable():
            return Refusal(Problem.STORE_UNAVAILABLE, headers={"Retry-After": "1"})
        case HTTPException():
            fallback = Problem.INTERNAL if error.status_code >= 500 else Problem.INVALID_JSON
            return Refusal(_BY_STATUS.get(error.status_code, fallback), headers=error.headers)
    return Refusal(Problem.INTERNAL)


def invalid(*errors: FieldProblem) -> Refusal:
    """A 422. Its detail is the first error, for people; its `errors` lists all of them, for programs."""
    first = errors[0]
    return Refusal(Problem.INVALID_INPUT, f"{first.field}: {first.message}", errors)


def respond(refusal: Refusal) -> Response:
    body = refusal.problem.body(refusal.detail)
    if refusal.errors:
        body["errors"] = refusal.errors
    return Response(msgspec.json.encode(body), refusal.status_code, refusal.headers, MEDIA_TYPE)


async def handle(_: Request, error: Exception) -> Response:
    """The exception handler of the whole application."""
    return respond(refusal_for(error))


_BY_STATUS = {problem.status: problem for problem in Problem}
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
