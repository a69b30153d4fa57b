"""The ASGI application: all routes, the middleware, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from doorstep import __version__
from doorstep.api import (
    accounts,
    alerts,
    bulk,
    deliveries,
    endpoints,
    events,
    inbox,
    ingest,
    pipelines,
    problems,
    search,
    stats,
)
from doorstep.api.access import PathMethods
from doorstep.api.direct import DirectRoute
from doorstep.api.docs_page import add_docs
from doorstep.api.middleware import (
    OVER_RATE,
    TOO_MANY_FAILURES,
    Authentication,
    Frame,
    KeyRequired,
    Methods,
    Throttle,
    client_of,
)
from doorstep.api.openapi import document
from doorstep.api.program import BodyLimit, EitherSlash, add_program, is_served_by, lines_of
from doorstep.app import Doorstep
from doorstep.coalesce import Shared
from doorstep.config import Settings
from doorstep.console.routes import add_console
from doorstep.console.sessions import SignInLinks
from doorstep.errors import DoorstepError
from doorstep.model.record import uuid7
from doorstep.telemetry.timings import Timings

_GROUPS = (
    ingest.routes,
    events.event_routes,
    inbox.inbox_routes,
    events.batch_routes,
    search.routes,
    deliveries.delivery_routes,
    deliveries.attempt_routes,
    deliveries.retry_queue_routes,
    deliveries.dead_letter_routes,
    endpoints.routes,
    bulk.routes,
    pipelines.routes,
    stats.routes,
    alerts.routes,
    accounts.routes,
    stats.health_routes,
)
OPERATIONS = tuple(operation for routes in _GROUPS for operation in routes.operations)
ROUTES = {one.line: one.access for one in OPERATIONS if one.access is not None}
"""The routes that need a key, as in the OpenAPI document, each with the permission that it needs."""


class Application(FastAPI):
    """Calls the direct routes before the framework and its middleware."""

    direct: Mapping[tuple[str, str], DirectRoute]
    """The direct routes by method and path, without those that the program replaces."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.direct.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (super().__call__ if route is None else route)(scope, receive, send)


def create_application(doorstep: Doorstep, links: SignInLinks | None = None) -> Application:
    """The ASGI application for an open Doorstep. `links` holds the sign-in links to the console."""
    links, settings = links or SignInLinks(doorstep.clock), doorstep.settings
    application = _application(doorstep, links, Limits.of(settings), doorstep.telemetry.timings, own=False)
    if doorstep.server.routers:
        application.state.own_api = _application(doorstep, links, Limits(0, 0), Timings(), own=True)
    return application


class Limits(NamedTuple):
    """How many requests per second one key, and one client address without a valid key, may make; 0 sets no limit."""

    requests: float
    failures: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(settings.requests_per_second, settings.failed_keys_per_second)


def _application(doorstep: Doorstep, links: SignInLinks, limits: Limits, timings: Timings, *, own: bool) -> Application:
    """With `own`, only Doorstep's own API, for the clients that the program's routes use in this process. Its requests
    are neither limited nor counted, because those that caused them already were."""
    application = Application(
        title="Doorstep",
        version=__version__,
        openapi_url=None,  # served by docs_page.py, which encodes the document only once
        docs_url=None,  # disabled, because FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,  # our own routes do not require one either
    )
    settings, clock = doorstep.settings, doorstep.clock
    application.state.doorstep = doorstep
    application.state.links = links
    application.state.inboxes = Shared()
    program = [] if own else add_program(application, doorstep.server.routers)
    for routes in _GROUPS:
        routes.add(application)
    add_docs(application)
    application.add_exception_handler(DoorstepError, problems.handle)
    application.add_exception_handler(HTTPException, problems.handle)
    if program:
        application.add_middleware(BodyLimit, routes=program, settings=settings)
        application.add_middleware(EitherSlash, routes=program)
    application.add_middleware(Methods, methods=PathMethods([*ROUTES, *lines_of(program)]))
    failures = Throttle(limits.failures, clock, TOO_MANY_FAILURES)
    if settings.console and not own:
        add_console(application, doorstep, links, lambda scope: failures.check(client_of(scope)))
    application.state.authentication = authentication = Authentication(
        lambda key: doorstep.components.keys.authenticate(key),
        requests=Throttle(limits.requests, clock, OVER_RATE),
        failures=failures,
    )
    application.add_middleware(KeyRequired, authentication=authentication)
    application.add_middleware(Frame, new_id=lambda: uuid7(clock.now()), timings=timings)
    direct = _direct_routes(doorstep, authentication, lambda: uuid7(clock.now()), timings)
    application.direct = {line: route for line, route in direct.items() if not is_served_by(program, *line)}
    application.openapi = partial(document, application, OPERATIONS, program)  # type: ignore[method-assign]
    return application


def _direct_routes(
    doorstep: Doorstep, authentication: Authentication, new_id: Callable[[], UUID], timings: Timings
) -> dict[tuple[str, str], DirectRoute]:
    return {
        (one.method, one.path): DirectRoute(
            one.method, one.path, access, function, doorstep, authentication, new_id, timings
        )
        for routes in _GROUPS
        for one, access, function in routes.direct_routes
    }
