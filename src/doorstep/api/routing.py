"""How every route is entered: permission first, then strict parsing within the same limits, then the answer.

A route is a function whose signature says it all: ids of its path, `caller`, `request`, `asked` (the shape of its
parameters), `body` (the shape of its body), and what it returns. msgspec reads, writes and describes those shapes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_type_hints
from uuid import UUID

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.access import ROUTES, Access, check
from doorstep.api.answers import answer
from doorstep.api.auth import api_key
from doorstep.api.bodies import OVERHEAD_BYTES, SMALL_BODY_BYTES_MAX, body_of, query_of
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.api.wording import REQUIRED, UNKNOWN, FieldError
from doorstep.model.org import ApiKey

R = TypeVar("R", bound=Callable[..., Awaitable[Any]])
Caller = ApiKey
"""The key that a request came with. What it may do has been checked by then."""
PlainRoute = Callable[[Request], Awaitable[Response]]
Reader = Callable[[Request], Any]


class Operation(NamedTuple):
    """One route, as it is entered and as the OpenAPI document describes it."""

    method: str
    path: str
    name: str
    about: str
    tags: tuple[str, ...]
    status: int
    answer: Any
    """A shape, a choice of shapes, or None for no content."""
    body: Any = None
    body_required: bool = True
    query: type[msgspec.Struct] | None = None
    ids: Mapping[str, Any] = MappingProxyType({})
    more: Mapping[int, Any] = MappingProxyType({})
    """Other answers by their status: a shape, or the JSON that describes one."""
    headers: tuple[dict[str, Any], ...] = ()
    """Parameters in the header, as JSON."""

    @property
    def line(self) -> str:
        """As in the table of routes."""
        return f"{self.method} {self.path}"


class Routes:
    """Routes that belong together; those that are open need no key. `add` adds them to the application."""

    def __init__(self, prefix: str, *tags: str, is_open: bool = False) -> None:
        self._prefix = prefix
        self._tags = tags
        self._is_open = is_open
        self._routes: list[tuple[Operation, PlainRoute]] = []

    def get(self, path: str = "", **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "GET", path, **options)

    def post(self, path: str = "", **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "POST", path, **options)

    def put(self, path: str = "", **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "PUT", path, **options)

    def patch(self, path: str = "", **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "PATCH", path, **options)

    def delete(self, path: str = "", **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "DELETE", path, status=204, **options)

    def plain(self, operation: Operation, route: PlainRoute) -> None:
        """One that reads its request and writes its answer itself, because every microsecond counts there."""
        self._routes.append((operation, route))

    def add(self, application: FastAPI) -> None:
        for operation, route in self._routes:
            entered = route if self._is_open else _guarded(operation, route)
            application.add_route(operation.path, entered, methods=[operation.method], include_in_schema=False)
            application.state.operations.append(operation)

    def _declare(
        self,
        method: str,
        path: str,
        function: R,
        *,
        status: int = 200,
        tags: Iterable[str] = (),
        payload: bool = False,
        answers: Any = None,
        more: dict[int, Any] | None = None,
    ) -> R:
        """`payload`: its body may be as large as an event. `answers`: what it answers with, if it makes a Response itself."""
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        body = hints.get("body")
        operation = Operation(
            method=method,
            path=self._prefix + path,
            name=function.__name__,
            about=inspect.getdoc(function) or "",
            tags=(*self._tags, *tags),
            status=status,
            answer=None if status == 204 else answers or hints["return"],
            body=body,
            body_required=body is not None and signature.parameters["body"].default is inspect.Parameter.empty,
            query=hints.get("asked"),
            ids={name: hints[name] for name in hints if f"{{{name}}}" in self._prefix + path},
            more=more or {},
        )
        self._routes.append((operation, _parsing(operation, function, hints, payload)))
        return function


def _parsing(operation: Operation, function: Callable[..., Any], hints: dict[str, Any], payload: bool) -> PlainRoute:
    """The route behind its parsing."""
    readers = {name: _reader(name, hint) for name, hint in hints.items() if name not in ("body", "return")}
    decoder = None if operation.body is None else msgspec.json.Decoder(operation.body)

    async def route(request: Request) -> Response:
        given = {name: read(request) for name, read in readers.items()}
        if decoder is not None:
            body = await body_of(request, decoder, _bytes_max(request, payload))
            if body is not None:
                given["body"] = body
            elif operation.body_required:
                raise invalid(FieldError("body", REQUIRED))
        result = await function(**given)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if operation.answer is None else answer(result, operation.status)

    return route


def _reader(name: str, hint: Any) -> Reader:
    if hint is ApiKey:
        return api_key
    if hint is Request:
        return lambda request: request
    if name == "asked":
        return lambda request: query_of(request, hint)
    if hint is UUID:
        return lambda request: id_of(request.path_params[name])
    return lambda request: request.path_params[name]


def id_of(text: str) -> UUID:
    """An id that is no id cannot name anything: that is the same 404 as an unknown one."""
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        raise Refusal(Problem.NOT_FOUND) from None


def _bytes_max(request: Request, payload: bool) -> int:
    return request.app.state.payload_bytes_max + OVERHEAD_BYTES if payload else SMALL_BODY_BYTES_MAX


def _guarded(operation: Operation, route: PlainRoute) -> PlainRoute:
    """The route behind its permission, and without parameters that it does not know."""
    access = _access(operation.line)
    known = frozenset(() if operation.query is None else operation.query.__struct_fields__)

    async def guarded(request: Request) -> Response:
        check(api_key(request), access)
        check_query(request, known)
        return await route(request)

    return guarded


def check_query(request: Request, known: frozenset[str]) -> None:
    """A parameter that is misspelt or given twice would silently widen what is asked for."""
    given = request.query_params
    if not given:
        return
    seen: set[str] = set()
    for name, _ in given.multi_items():
        if name not in known:
            raise invalid(FieldError(name, UNKNOWN))
        if name in seen:
            raise invalid(FieldError(name, "must be given once"))
        seen.add(name)


def _access(line: str) -> Access:
    assert line in ROUTES, f"{line} is not in the table of routes; add it to api/access.py with its permission"
    return ROUTES[line]
