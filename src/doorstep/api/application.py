"""The ASGI application: all routes, the middleware, and the OpenAPI document."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI

from doorstep import __version__
from doorstep.api import problems
from doorstep.api.accounts import audit_routes, key_routes, sign_in_link_routes
from doorstep.api.alerts import alert_routes, alert_rule_routes, channel_routes, silence_routes
from doorstep.api.bulk import bulk_routes, bulk_start_routes
from doorstep.api.deliveries import dead_letter_routes, delivery_routes, retry_queue_routes
from doorstep.api.docs_page import add_docs
from doorstep.api.endpoints import endpoint_routes
from doorstep.api.events import batch_routes, event_routes
from doorstep.api.ingest import ingest_routes
from doorstep.api.middleware import OVER_RATE, TOO_MANY_FAILURES, Authentication, Frame, Methods, Throttle
from doorstep.api.openapi import document
from doorstep.api.pipelines import pipeline_routes
from doorstep.api.stats import health_routes, stats_routes, worker_routes
from doorstep.app import Doorstep
from doorstep.console.routes import add_console
from doorstep.console.sessions import SignInLinks
from doorstep.model.record import uuid7

_GROUPS = (
    ingest_routes,
    event_routes,
    delivery_routes,
    endpoint_routes,
    retry_queue_routes,
    dead_letter_routes,
    bulk_start_routes,
    bulk_routes,
    batch_routes,
    pipeline_routes,
    stats_routes,
    alert_routes,
    alert_rule_routes,
    silence_routes,
    channel_routes,
    worker_routes,
    audit_routes,
    key_routes,
    health_routes,
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
    application.state.payload_bytes_max = doorstep.settings.payload_bytes_max
    application.state.operations = []
    for routes in _GROUPS:
        routes(doorstep).add(application)
    settings, clock = doorstep.settings, doorstep.clock
    links = links or SignInLinks(clock)
    sign_in_link_routes(doorstep, links).add(application)
    add_docs(application)
    for error in problems.HANDLED:
        application.add_exception_handler(error, problems.handle)
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
