"""Declares routes. A route checks the permission, parses the request strictly, and encodes the function's result.

A route is a function whose signature describes it: the ids in its path, `request`, `query` (the shape of its
parameters), `body` (the shape of its body), and its return type. msgspec parses, encodes and describes those shapes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints
from uuid import UUID

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.access import Access, check
from doorstep.api.codec import OVERHEAD_BYTES, SMALL_BODY_BYTES_MAX, answer, body_of, check_parameters, query_of
from doorstep.api.direct import DirectFunction
from doorstep.api.middleware import ROUTE, api_key
from doorstep.api.problems import Problem, Refusal, invalid
from doorstep.app import Doorstep
from doorstep.model.org import Permission
from doorstep.schemas.shape import FieldProblem
from doorstep.schemas.wording import REQUIRED

R = TypeVar("R", bound=Callable[..., Awaitable[Any]])
PlainRoute = Callable[[Request], Awaitable[Response]]
Reader = Callable[[Request], Any]


class ApiRequest:
    """A request with a valid key, after the key's permission has been checked."""

    def __init__(self, http: Request) -> None:
        self.doorstep = doorstep_of(http)
        self.components = self.doorstep.components
        self.reader = self.components.reader
        self.key = api_key(http)
        self.org_id = self.key.org_id
        self.actor = self.key.prefix
        """The caller's id in the audit log: the visible prefix of its key."""
        self.user_id = self.key.user_id
        """The user to whose events the key is restricted; None if it is not restricted."""
        self.http = http
        self._names: dict[str, str] = {}

    async def who(self, actor: str) -> dict[str, str]:
        """An actor in a response: the name of its key, and its id. Each actor is looked up once per request."""
        if actor not in self._names:
            self._names |= {actor: actor} | await self.reader.key_names(self.org_id, [actor])
        return {"actor": self._names[actor], "actor_id": actor}


def doorstep_of(request: Request) -> Doorstep:
    return cast(Doorstep, request.app.state.doorstep)


class Operation(NamedTuple):
    """One route: how it is called, and how the OpenAPI document describes it."""

    method: str
    path: str
    name: str
    about: str
    tags: tuple[str, ...]
    status: int
    answer: Any
    """A shape, a union of shapes, or None for no content."""
    access: Access | None
    """None for a public route, which needs no key."""
    body: Any = None
    body_required: bool = True
    query: type[msgspec.Struct] | None = None
    ids: Mapping[str, Any] = MappingProxyType({})
    more: Mapping[int, Any] = MappingProxyType({})
    """Other responses, by status. Each is a shape, or its JSON description."""
    headers: tuple[dict[str, Any], ...] = ()
    """Header parameters, as JSON."""

    @property
    def line(self) -> str:
        """The method and the path, as in the OpenAPI document."""
        return f"{self.method} {self.path}"


class Routes:
    """A group of routes. Each states the permission that it needs; None makes it public."""

    def __init__(self, prefix: str, *tags: str) -> None:
        self._prefix = prefix
        self._tags = tags
        self._routes: list[tuple[Operation, PlainRoute]] = []
        self.direct_routes: list[tuple[Operation, Access, DirectFunction]] = []
        """The routes that are served without the framework."""

    def get(self, path: str, permission: Permission | None, **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "GET", path, permission, **options)

    def post(self, path: str, permission: Permission | None, **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "POST", path, permission, **options)

    def put(self, path: str, permission: Permission | None, **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "PUT", path, permission, **options)

    def patch(self, path: str, permission: Permission | None, **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "PATCH", path, permission, **options)

    def delete(self, path: str, permission: Permission | None, **options: Any) -> Callable[[R], R]:
        return partial(self._declare, "DELETE", path, permission, status=204, **options)

    def plain(
        self, method: str, path: str, access: Access, answers: Any, status: int = 200, **more: Any
    ) -> Callable[[R], R]:
        """Declare a frequently used route. Its function parses the request and encodes the response itself, because
        parsing by signature would take a third of the route's time. `more` contains the other fields of the
        Operation."""

        def declare(function: R) -> R:
            name, about = function.__name__, _about(function)
            operation = Operation(method, path, name, about, self._tags, status, answers, access, **more)
            self._routes.append((operation, lambda http: function(ApiRequest(http))))
            return function

        return declare

    def direct(
        self, method: str, path: str, access: Access, answers: Any, status: int = 200, **more: Any
    ) -> Callable[[DirectFunction], DirectFunction]:
        """Declare a route that is served without the framework; see direct.py."""

        def declare(function: DirectFunction) -> DirectFunction:
            name, about = function.__name__, _about(function)
            operation = Operation(method, path, name, about, self._tags, status, answers, access, **more)
            self.direct_routes.append((operation, access, function))
            return function

        return declare

    @property
    def operations(self) -> list[Operation]:
        return [operation for operation, _, _ in self.direct_routes] + [operation for operation, _ in self._routes]

    def add(self, application: FastAPI) -> None:
        """Add the group to an application."""
        for operation, route in self._routes:
            entered = _guarded(operation, operation.access, route)
            application.add_route(operation.path, entered, methods=[operation.method], include_in_schema=False)

    def _declare(
        self,
        method: str,
        path: str,
        permission: Permission | None,
        function: R,
        *,
        status: int = 200,
        tags: Iterable[str] = (),
        payload: bool = False,
        answers: Any = None,
        more: dict[int, Any] | None = None,
        **access: bool,
    ) -> R:
        """With `payload`, the body may be as large as an event. `answers` is the shape of the response, if the function
        returns a Response. `access` contains the other fields of Access."""
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        body = hints.get("body")
        operation = Operation(
            method=method,
            path=self._prefix + path,
            name=function.__name__,
            about=_about(function),
            tags=(*self._tags, *tags),
            status=status,
            answer=None if status == 204 else answers or hints["return"],
            access=None if permission is None else Access(permission, **access),
            body=body,
            body_required=body is not None and signature.parameters["body"].default is inspect.Parameter.empty,
            query=hints.get("query"),
            ids={name: hints[name] for name in hints if f"{{{name}}}" in self._prefix + path},
            more=more or {},
        )
        self._routes.append((operation, _parsing(operation, function, hints, payload)))
        return function


def _about(function: Callable[..., Any]) -> str:
    """The function's docstring as one line."""
    return " ".join((inspect.getdoc(function) or "").split())


def _parsing(operation: Operation, function: Callable[..., Any], hints: dict[str, Any], payload: bool) -> PlainRoute:
    """Wrap a function so that its arguments are parsed from the request."""
    readers = {name: _reader(name, hint) for name, hint in hints.items() if name not in ("body", "return")}
    decoder = None if operation.body is None else msgspec.json.Decoder(operation.body)

    async def route(request: Request) -> Response:
        given = {name: read(request) for name, read in readers.items()}
        if decoder is not None:
            large = doorstep_of(request).settings.payload_bytes_max + OVERHEAD_BYTES
            body = await body_of(request, decoder, large if payload else SMALL_BODY_BYTES_MAX)
            if body is not None:
                given["body"] = body
            elif operation.body_required:
                raise invalid(FieldProblem("body", REQUIRED))
        result = await function(**given)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if operation.answer is None else answer(result, operation.status)

    return route


def _reader(name: str, hint: Any) -> Reader:
    if hint is ApiRequest:
        return ApiRequest
    if hint is Doorstep:
        return doorstep_of
    if name == "query":
        return lambda request: query_of(request, hint)
    if hint is UUID:
        return lambda request: id_of(request.path_params[name])
    return lambda request: request.path_params[name]


def id_of(text: str) -> UUID:
    """Parse an id. A malformed id gets a 404, like an unknown one."""
    try:
        return msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        raise Refusal(Problem.NOT_FOUND) from None


def _guarded(operation: Operation, access: Access | None, route: PlainRoute) -> PlainRoute:
    """Wrap a route so that it leaves its path for the metrics. Unless it is public, it also checks the permission and
    rejects unknown query parameters."""
    known = frozenset(() if operation.query is None else operation.query.__struct_fields__)

    async def guarded(request: Request) -> Response:
        request.scope[ROUTE] = operation.path
        if access is not None:
            check(api_key(request), access)
            check_query(request, known)
        return await route(request)

    return guarded


def check_query(request: Request, known: frozenset[str]) -> None:
    """Reject unknown and repeated parameters."""
    given = request.query_params
    if given:
        check_parameters(given, known)
