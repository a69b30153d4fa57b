"""A call: one request to one route, and how its answer is read; repeated where that is harmless and may help.

Calls are values: who carries them out, blocking or not, is not their business.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from doorstep.client.errors import TimedOut, UnexpectedAnswer, Unreachable, error_for
from doorstep.client.steps import Answer, Request, Silence, Steps, exchange, pause
from doorstep.schemas.shape import Id, Listing, Pagination

T = TypeVar("T")
Reader: TypeAlias = Callable[[bytes], T]
JSON = {"content-type": "application/json"}
NULL = msgspec.Raw(b"null")
"""For a body in which null is a value of its own, and not something left out."""


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


def paged(listing: type[Listing[T]]) -> Reader[Page[T]]:
    """Reads a page of things."""
    decoder = msgspec.json.Decoder(listing)

    def read(content: bytes) -> Page[T]:
        read = decoder.decode(content)
        return Page(read.listed, read.position)

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


# -- repeating and waiting ---------------------------------------------------------------------------------------

_PASSING = frozenset({429, 502, 503, 504})
"""Refusals that say nothing about the request itself."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often a call is tried, and how long the pauses are: doubled each time, and at least what Retry-After says.

    Only calls that may safely be sent twice are repeated: those that read, and the sending of events, which carries
    an idempotency key.
    """

    tries_max: int = 5
    first_pause_seconds: float = 0.25
    longest_pause_seconds: float = 30.0
    random: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """One after each try but the last; drawn from the upper half, so that many clients do not come back at once."""
        for number in range(self.tries_max - 1):
            yield self.first_pause_seconds * 2**number * (1 + self.random()) / 2


USUAL = Retrying()
NEVER = Retrying(tries_max=1)
"""Every request is sent once."""


def perform(call: Call[T], retrying: Retrying) -> Steps[T]:
    """What the call gives in the end."""
    reply = yield from exchange(call.request)
    if call.repeatable:
        for seconds in retrying.pauses():
            if not _passing(reply):
                break
            yield from pause(min(max(seconds, _asked_for(reply)), retrying.longest_pause_seconds))
            reply = yield from exchange(call.request)
    return call.read(reply)


def _passing(reply: Answer | Silence) -> bool:
    return isinstance(reply, Silence) or reply.status in _PASSING


def _asked_for(reply: Answer | Silence) -> float:
    return 0.0 if isinstance(reply, Silence) else reply.retry_after_seconds or 0.0


_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_GROWTH = 1.5


def until(ask: Callable[[], Steps[T]], enough: Callable[[T], bool], timeout: float, subject: str) -> Steps[T]:
    """The first answer that is enough. Asked often at first, then every two seconds; at least once in any case."""
    now = yield from pause(0.0)
    deadline, seconds = now + timeout, _FIRST_PAUSE_SECONDS
    while True:
        seen = yield from ask()
        if enough(seen):
            return seen
        # The asking takes time too, so the clock is read again before it is decided how long to pause.
        now = yield from pause(0.0)
        if now >= deadline:
            raise TimedOut(f"{subject} did not get there within {timeout:g} s", seen)
        yield from pause(min(seconds, deadline - now))
        seconds = min(seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)
