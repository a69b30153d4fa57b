"""Calls: one request to one route, and how its response is decoded.

A call is plain data and does no I/O. verbs.py sends it, blocking or with asyncio, and repeats it if that is safe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import msgspec

from doorstep.client.errors import Answer, UnexpectedAnswer, Unreachable, error_for
from doorstep.finite import check_finite
from doorstep.schemas.shape import Id, Listing, Pagination

T = TypeVar("T")
Reader: TypeAlias = Callable[[bytes], T]
JSON = {"content-type": "application/json"}
NULL = msgspec.Raw(b"null")
"""A JSON null that is sent as a value, where None would mean an omitted field."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The reason why there was no response."""

    reason: str


class Paging(TypedDict, total=False):
    """The keyword arguments of every paginated list."""

    limit: int | None
    cursor: str | None


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
    """One request to one route. `repeatable` means that sending the request twice has the same effect as sending it
    once."""

    method: str
    route: str
    """The path as in the OpenAPI document, `/v1/events/{event_id}`."""
    ids: tuple[Id, ...]
    reader: Reader[T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = False

    @property
    def path(self) -> str:
        """The route with the ids filled in, relative to the server's URL. The ids are quoted, so that none of them can
        add or remove parts of the path."""
        ids = iter(self.ids)
        return re.sub(r"\{\w+\}", lambda _: quote(str(next(ids)), safe="").replace(".", "%2E"), self.route)

    def read(self, reply: Answer | Silence) -> T:
        """Decode the response, or raise the matching exception."""
        if isinstance(reply, Silence):
            raise Unreachable(f"{self.method} {self.path}: {reply.reason}")
        if reply.status >= 400:
            raise error_for(reply)
        if reply.status >= 300:
            raise UnexpectedAnswer(
                f"{self.method} {self.path} was redirected ({reply.status}), which is not followed; check the URL"
            )
        try:
            return self.reader(reply.content)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            raise UnexpectedAnswer(
                f"{self.method} {self.path} returned {reply.status} with a body that cannot be decoded: {error}"
            ) from None

    def after(self, cursor: str) -> Call[T]:
        """The same call for the next page."""
        return replace(self, query={**self.query, "cursor": cursor})


def get(reader: Reader[T], route: str, *ids: Id, query: Mapping[str, object] | None = None) -> Call[T]:
    """A GET request. Query parameters that are None are left out. A mapping becomes one parameter for each of its
    items: `payload[order.id]`."""
    texts: dict[str, str] = {}
    for name, value in given(query or {}).items():
        items = {f"{name}[{key}]": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        texts |= {key: _as_text(one) for key, one in items.items()}
    return Call("GET", route, ids, reader, query=texts, repeatable=True)


def post(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object] | None = None) -> Call[T]:
    """A POST request. Fields that are None are left out of the body. It is never repeated."""
    if body is None:
        return Call("POST", route, ids, reader)
    return Call("POST", route, ids, reader, headers=JSON, content=msgspec.json.encode(given(body)))


def put(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object]) -> Call[T]:
    """A PUT request. It is idempotent, so it may be repeated."""
    return Call("PUT", route, ids, reader, headers=JSON, content=msgspec.json.encode(given(body)), repeatable=True)


def patch(reader: Reader[T], route: str, *ids: Id, body: Mapping[str, object]) -> Call[T]:
    """A PATCH request. Here None is a value: it resets a field to its default."""
    return Call("PATCH", route, ids, reader, headers=JSON, content=msgspec.json.encode(body))


def delete(route: str, *ids: Id, query: Mapping[str, object] | None = None) -> Call[None]:
    """A DELETE request. It is not repeated, because the second response would be a 404."""
    texts = {name: _as_text(value) for name, value in given(query or {}).items()}
    return Call("DELETE", route, ids, lambda _: None, query=texts)


def one(shape: type[T]) -> Reader[T]:
    """Decodes one object."""
    return msgspec.json.Decoder(shape).decode


def paged(listing: type[Listing[T]]) -> Reader[Page[T]]:
    """Decodes a page of a list."""
    decoder = msgspec.json.Decoder(listing)

    def decode(content: bytes) -> Page[T]:
        listing = decoder.decode(content)
        return Page(listing.listed, listing.pagination)

    return decode


def text(content: bytes) -> str:
    """Decodes a body that is text, not JSON."""
    return content.decode()


def given(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def json_of(payload: object) -> object:
    """A payload to embed in a request body: plain values, dataclasses, TypedDicts, msgspec structs or a pydantic model,
    which is written under the aliases of its fields. Bytes must be JSON and are embedded unchanged.

    The bytes are validated here, because invalid JSON could change the meaning of the surrounding body. Raises
    ValueError for NaN and infinities, which JSON does not have.
    """
    if payload is None:
        return None
    if (pydantic := getattr(type(payload), "__pydantic_serializer__", None)) is not None:
        content = pydantic.to_json(payload, by_alias=True)
        check_finite(payload, content, lambda model: pydantic.to_python(model, mode="json"))
        return msgspec.Raw(content)
    if not isinstance(payload, bytes | bytearray | memoryview):
        content = msgspec.json.encode(payload)
        check_finite(payload, content)
        return msgspec.Raw(content)
    content = bytes(payload)
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"a payload given as bytes must be JSON in UTF-8: {error}") from None
    return msgspec.Raw(content)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return value.isoformat() if isinstance(value, datetime) else str(value)
