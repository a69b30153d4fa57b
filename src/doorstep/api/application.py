"""The ASGI application: all routes, the middleware, and the OpenAPI document."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from doorstep import __version__
from doorstep.api import accounts, alerts, bulk, deliveries, endpoints, events, ingest, pipelines, problems, stats
from doorstep.api.docs_page import add_docs
from doorstep.api.middleware import OVER_RATE, TOO_MANY_FAILURES, Authentication, Frame, Methods, Throttle
from doorstep.api.openapi import document
from doorstep.app import Doorstep
from doorstep.coalesce import Shared
from doorstep.console.routes import add_console
from doorstep.console.sessions import SignInLinks
from doorstep.errors import DoorstepError
from doorstep.model.record import uuid7

_GROUPS = (
    ingest.routes,
    events.event_routes,
    events.batch_routes,
    deliveries.delivery_routes,
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


def create_application(doorstep: Doorstep, links: SignInLinks | None = None) -> FastAPI:
    """The ASGI application for an open Doorstep. `links` holds the sign-in links to the console."""
    application = FastAPI(
        title="Doorstep",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,  # disabled, because FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    settings, clock = doorstep.settings, doorstep.clock
    links = links or SignInLinks(clock)
    application.state.doorstep = doorstep
    application.state.links = links
    application.state.inboxes = Shared()
    application.state.operations = []
    for routes in _GROUPS:
        routes.add(application)
    add_docs(application)
    application.add_exception_handler(DoorstepError, problems.handle)
    application.add_exception_handler(HTTPException, problems.handle)
    application.add_middleware(Methods)
    failures = Throttle(settings.failed_keys_per_second, clock, TOO_MANY_FAILURES)
    if settings.console:
        add_console(application, doorstep, links, failures)
    application.add_middleware(
        Authentication,
        authenticate=lambda key: doorstep.components.keys.authenticate(key),
        requests=Throttle(settings.requests_per_second, clock, OVER_RATE),
        failures=failures,
    )
    application.add_middleware(Frame, new_id=lambda: uuid7(clock.now()))
    application.openapi = partial(document, application)  # type: ignore[method-assign]
    return application
