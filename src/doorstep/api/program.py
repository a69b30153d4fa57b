"""Routes that a program adds to the server: FastAPI routers with the keys, roles, problems and metrics of Doorstep.

A program's route comes before Doorstep's own, so a program can also replace a route under /v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import fastapi.routing
import msgspec
from fastapi import Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api import problems
from doorstep.api.access import Access, check
from doorstep.api.codec import OVERHEAD_BYTES, decode, limited, read_body
from doorstep.api.ingest import BATCH_PATH
from doorstep.api.middleware import HEADER, Authentication, correlation_id
from doorstep.api.routing import doorstep_of
from doorstep.client import ApiError, AsyncClient
from doorstep.clock import from_datetime, to_iso
from doorstep.config import Settings
from doorstep.errors import ConfigError, InvalidInput
from doorstep.model.org import ALLOWED, ApiKey, Permission, Role
from doorstep.schemas.shape import FieldProblem
from doorstep.server_additions import Routers
from doorstep.telemetry.tracing import incoming


class Caller:
    """Who calls a route: the organization, the role and, if it has one, the user of the API key."""

    def __init__(self, key: ApiKey, request: Request, connect: Callable[[], AsyncClient]) -> None:
        self._connect = connect
        self._client: AsyncClient | None = None
        self.org_id: UUID = key.org_id
        self.user_id: str | None = key.user_id
        """The user to whose events the caller is restricted; None if the key has no user."""
        self.name: str = key.name
        """The name of the key."""
        self.role: Role = key.role
        self.actor: str = key.prefix
        """The caller's id in the audit log: the visible prefix of the key."""
        self.correlation_id: str = correlation_id(request)
        """The correlation id of the request. Pass it to `send`, so that the event keeps it."""
        trace = incoming(request.headers.get("traceparent"))
        self.traceparent: str | None = trace
        """The W3C trace context of the request; None if it has no valid one. Pass it to `send`, so that the deliveries
        of the event are in this trace."""
        self.tracestate: str | None = None if trace is None else request.headers.get("tracestate")
        """The rest of the trace context."""

    @property
    def client(self) -> AsyncClient:
        """The Python client of Doorstep's own API under `/v1`, in this process, with the caller's key and correlation id.
        It can do what the caller may do. A problem that it raises becomes the response."""
        if self._client is None:
            self._client = self._connect()
        return self._client

    def may(self, permission: Permission | str) -> bool:
        """Whether the caller's role has a permission."""
        return Permission(permission) in ALLOWED[self.role]


def allowed(permission: Permission | str, *, own: bool = False) -> Any:
    """A FastAPI dependency that returns the Caller, or responds with a 401 or a 403 if there is no valid API key or its
    role lacks the permission.

        @router.get("/orders")
        async def orders(caller: Annotated[Caller, allowed("look")]) -> list[str]: ...

    The permissions are `send`, `status`, `inbox`, `consume`, `look`, `act` and `administer`. A key with a user may use
    the route only with `own`: the route must then restrict itself to `caller.user_id`.
    """
    return Depends(_CallerWith(Access(Permission(permission), own=own)))


class _CallerWith:
    """The dependency of `allowed`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def __call__(self, request: Request) -> Caller:
        authentication: Authentication = request.app.state.authentication
        key = await authentication.require_key(request.scope)
        check(key, self._access)
        return Caller(key, request, lambda: _client_of(request))


def json_body(shape: Any, default: Any = msgspec.UNSET) -> Any:
    """A FastAPI dependency that returns the JSON body, decoded into a msgspec struct, or into another type that msgspec
    knows. It reads at most as much as an event may have (or a batch, if the route replaces `/v1/events/batch`), keeps
    `msgspec.Raw` byte for byte, and rejects a body of another shape with a 422 that names the field. If there is a
    `default`, an empty body means the default.

        async def order(body: Annotated[Order, json_body(Order)]) -> None: ...
    """
    decoder = msgspec.json.Decoder(shape)

    async def body(request: Request) -> Any:
        content = await read_body(request, body_bytes_max(doorstep_of(request).settings, request.url.path))
        return default if default is not msgspec.UNSET and not content else decode(decoder, content)

    return Depends(body)


@contextmanager
def field_names(**names: str) -> Iterator[None]:
    """Name the fields in errors as your clients know them:

    with field_names(died_from="date_from"):
        page = await caller.client.dead_letters.page(died_from=date_from)
    """
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(names.get(error.field, error.field), error.message) from None
    except ApiError as error:
        if not error.errors:
            raise
        raise problems.invalid(
            *(FieldProblem(names.get(one.field, one.field), one.message) for one in error.errors)
        ) from None


def body_bytes_max(settings: Settings, path: str) -> int:
    """The maximum size of the body of a request to a program's route."""
    return settings.batch_bytes_max if path == BATCH_PATH else settings.payload_bytes_max + OVERHEAD_BYTES


def iso(value: datetime | None) -> str | None:
    """A time in the format of the API: ISO 8601 in UTC, with microseconds and a Z."""
    return None if value is None else to_iso(from_datetime(value))


def _client_of(request: Request) -> AsyncClient:
    forwarded = ("x-api-key", "authorization", "traceparent", "tracestate")
    headers = {name: request.headers[name] for name in forwarded if name in request.headers}
    return AsyncClient.in_process(request.app.state.own_api, headers | {HEADER: correlation_id(request)})


async def _handle_client_error(_: Request, error: Exception) -> Response:
    """A problem of the caller's client, as the response to the caller."""
    assert isinstance(error, ApiError)
    problem = {"type": f"urn:doorstep:problem:{error.code}", "title": error.title, "status": error.status}
    body = problem | {"detail": error.detail} | ({"errors": error.errors} if error.errors else {})
    return Response(msgspec.json.encode(body), error.status, media_type=problems.MEDIA_TYPE)


def add_program(application: FastAPI, routers: Routers) -> list[BaseRoute]:
    """Add the routers of the program. Call this first, so that its routes come first. Returns these routes."""
    framework = len(application.routes)  # the OpenAPI document
    for router, options in routers:
        application.include_router(router, **options)
    program = application.routes[framework:]
    for route in _single(program):
        _check_access(route)
    application.add_exception_handler(RequestValidationError, problems.handle)
    application.add_exception_handler(ApiError, _handle_client_error)
    return program


def _check_access(route: Any) -> None:
    """Raise ConfigError if a route under /v1 would be open to every key, also to one with a user."""
    if _is_under_v1(route) and not _has_caller(getattr(route, "dependant", None)):
        raise ConfigError(
            f"a route under /v1 must have a dependency allowed(…), got {route.path} without one; add it to the route or to "
            "its router, or choose another path"
        )


def _has_caller(dependant: Dependant | None) -> bool:
    if dependant is None:  # not a route of FastAPI
        return False
    return isinstance(dependant.call, _CallerWith) or any(map(_has_caller, dependant.dependencies))


def _single(routes: Iterable[BaseRoute]) -> Iterable[Any]:
    """Each route with its path, methods and dependencies. Newer versions of FastAPI keep an included router
    in one piece."""
    return getattr(fastapi.routing, "iter_route_contexts", iter)(routes)


def _is_under_v1(route: Any) -> bool:
    return str(getattr(route, "path", None) or "").startswith("/v1/")


def lines_of(routes: Iterable[BaseRoute]) -> list[str]:
    """The routes under /v1, as in the OpenAPI document."""
    found = filter(_is_under_v1, _single(routes))
    return [f"{method} {route.path}" for route in found for method in getattr(route, "methods", None) or ()]


def is_served_by(routes: Iterable[BaseRoute], method: str, path: str) -> bool:
    """Whether one of the routes is called for this method and path."""
    return _matches(routes, {"type": "http", "method": method, "path": path, "headers": []})


def _matches(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in routes)


class BodyLimit:
    """Rejects requests to the routes of a program with a larger body than `body_bytes_max`, because the framework reads
    bodies of any size."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], settings: Settings) -> None:
        self._app = app
        self._routes = list(routes)
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _matches(self._routes, scope):
            bytes_max = body_bytes_max(self._settings, scope["path"])
            receive = limited(receive, Headers(scope=scope).get("content-length", ""), bytes_max)
        await self._app(scope, receive, send)


class EitherSlash:
    """Lets the routes of a program be called with and without a slash at the end of the path."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = list(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _matches(self._routes, scope):
            path = scope["path"]
            other = {**scope, "path": path[:-1] if path.endswith("/") else f"{path}/"}
            scope["path"] = other["path"] if _matches(self._routes, other) else path
        await self._app(scope, receive, send)
