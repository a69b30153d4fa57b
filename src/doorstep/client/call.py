"""A call: one request to one route, and how its answer is read.

Calls are values. Who carries them out, blocking or not, and how often they are repeated, is not their business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from doorstep.client.errors import UnexpectedAnswer, Unreachable, error_for
from doorstep.client.steps import Answer, Request, Silence

T = TypeVar("T")
Id: TypeAlias = UUID | str
Reader: TypeAlias = Callable[[bytes], T]
JSON = {"content-type": "application/json"}
NULL = msgspec.Raw(b"null")
"""For a body in which null is a value of its own, and not something left out."""


class Pagination(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page stands in its list. The count is there only where it is cheap."""

    limit: int
    cursor: str | None
    has_more: bool
    total_count: int | None = None
    total_is_floor: bool = False
    """There are at least so many."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: tuple[T, ...]
    pagination: Pagination

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request to one route. `repeatable`: to send it twice has the effect of sending it once."""

    method: str
    route: str
    """The path as the API's description has it, `/v1/events/{event_id}`."""
    ids: tuple[str, ...]
    reader: Reader[T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = False

    @property
    def request(self) -> Request:
        return Request(self.method, _path(self.route, self.ids), self.query, self.headers, self.content)

    def read(self, reply: Answer | Silence) -> T:
        """What the answer says, or the exception that it stands for."""
        if isinstance(reply, Silence):
            raise Unreachable(f"{self.method} {self.request.path}: {reply.reason}")
        if reply.status >= 400:
            raise error_for(reply)
        if reply.status >= 300:
            raise UnexpectedAnswer(
                f"{self.method} {self.request.path} was sent elsewhere ({reply.status}); nothing was done"
            )
        try:
            return self.reader(reply.content)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            raise UnexpectedAnswer(
                f"{self.method} {self.request.path} answered {reply.status} with something that cannot be read: {error}"
            ) from None

    def after(self, cursor: str) -> Call[T]:
        """The same call for the next page."""
        return replace(self, query={**self.query, "cursor": cursor})


def get(reader: Reader[T], route: str, *ids: Id, query: Mapping[str, object] | None = None) -> Call[T]:
    """Ask for something. What is None in the query is left out."""
    return Call("GET", route, _texts(ids), reader, query=_query(query or {}), repeatable=True)


def post(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object] | None = None) -> Call[T]:
    """Have something done. What is None in the body is left out; it is never repeated by itself."""
    if body is None:
        return Call("POST", route, _texts(ids), reader)
    return Call("POST", route, _texts(ids), reader, headers=JSON, content=encoded(given(body)))


def put(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object]) -> Call[T]:
    """Set something as a whole; the second time it changes nothing, so it may be repeated."""
    return Call("PUT", route, _texts(ids), reader, headers=JSON, content=encoded(given(body)), repeatable=True)


def patch(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object]) -> Call[T]:
    """Change some fields. Here None is a value: it resets a field to its default."""
    return Call("PATCH", route, _texts(ids), reader, headers=JSON, content=encoded(body))


def delete(route: str, *ids: Id) -> Call[None]:
    """Delete something; the second time it would be a 404, so it is not repeated by itself."""
    return Call("DELETE", route, _texts(ids), _nothing)


def one(shape: type[T]) -> Reader[T]:
    """Reads one thing."""
    return msgspec.json.Decoder(shape).decode


def paged(name: str, shape: type[T]) -> Reader[Page[T]]:
    """Reads a page of things that the answer calls `name`."""
    items = msgspec.json.Decoder(tuple[shape, ...])  # type: ignore[valid-type]

    def read(content: bytes) -> Page[T]:
        parts = _parts.decode(content)
        return Page(items.decode(parts[name]), _pagination.decode(parts["pagination"]))

    return read


def text(content: bytes) -> str:
    """Reads an answer that is not JSON."""
    return content.decode()


def given(fields: Mapping[str, object]) -> dict[str, object]:
    """Without the fields that were not given."""
    return {name: value for name, value in fields.items() if value is not None}


def encoded(body: object) -> bytes:
    """As JSON; `json_of` says what may stand in a payload."""
    return msgspec.json.encode(body)


def json_of(payload: object) -> object:
    """What stands for a payload in a body: bytes are JSON already and stay as they are, to the byte.

    They are checked here, because what is no JSON value could say something else in the middle of a body.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):
        return payload
    content = bytes(payload)
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"a payload given as bytes must be JSON in UTF-8: {error}") from None
    return msgspec.Raw(content)


def _nothing(_: bytes) -> None:
    return None


def _texts(ids: Sequence[Id]) -> tuple[str, ...]:
    return tuple(map(str, ids))


def _path(route: str, ids: Sequence[str]) -> str:
    """The ids in the places of the braces. Whatever stands in an id cannot lead to another path."""
    parts = iter(ids)
    return re.sub(r"\{\w+\}", lambda _: quote(next(parts), safe="").replace(".", "%2E"), route)


def _query(query: Mapping[str, object]) -> dict[str, str]:
    return {name: _as_text(value) for name, value in given(query).items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_pagination = msgspec.json.Decoder(Pagination)
