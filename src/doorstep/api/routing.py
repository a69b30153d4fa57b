"""How every route under /v1 is entered: permission first, then strict parsing within the same limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from doorstep.api.access import ROUTES, Access, check
from doorstep.api.auth import api_key
from doorstep.api.bodies import StrictRequest
from doorstep.api.problems import invalid
from doorstep.api.wording import UNKNOWN, FieldError

PlainRoute = Callable[[Request], Awaitable[Response]]


class StrictRoute(APIRoute):
    """A FastAPI route that asks the table for its permission and has its bodies read and parsed our way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        method = min(self.methods or ())
        access = _access(method, self.path)
        known = frozenset(_query_names(self))

        async def strict(request: Request) -> Response:
            check(api_key(request), access)
            check_query(request, known)
            return await handler(StrictRequest(_as_json(request.scope), request.receive))

        return strict


def group(prefix: str, *tags: str, strict: bool = True) -> APIRouter:
    """For routes that belong together; those that are not strict are open to everybody. `add_group` adds them."""
    return APIRouter(
        prefix=prefix,
        tags=list(tags),
        route_class=StrictRoute if strict else APIRoute,
        generate_unique_id_function=lambda route: route.name,
    )


def add_group(application: FastAPI, routes: APIRouter) -> None:
    """As they are. `include_router` would make each of them a second time, when the first request comes: half of the 140 ms
    of CPU that all of them take."""
    application.router.routes.extend(routes.routes)


def add_plain(application: FastAPI, method: str, path: str, route: PlainRoute, query: Iterable[str] = ()) -> None:
    """A hot route without FastAPI's cost; the OpenAPI document gets it from openapi.py."""
    access = _access(method, path)
    known = frozenset(query)

    async def entered(request: Request) -> Response:
        check(api_key(request), access)
        check_query(request, known)
        return await route(request)

    application.add_route(path, entered, methods=[method], include_in_schema=False)


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


def _access(method: str, path: str) -> Access:
    line = f"{method} {path}"
    assert line in ROUTES, f"{line} is not in the table of routes; add it to api/access.py with its permission"
    return ROUTES[line]


def _query_names(route: APIRoute) -> Iterable[str]:
    """The parameters themselves, or the fields of the model that gathers them."""
    for field in route.dependant.query_params:
        model = getattr(field.field_info.annotation, "model_fields", None)
        yield from (field.alias,) if model is None else model


def _as_json(scope: Scope) -> Scope:
    """Every body here is JSON, whatever its header says: `curl -d` calls it a form, and FastAPI would believe it."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}
