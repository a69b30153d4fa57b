"""The application: all routes, the rules that hold for all of them, and the OpenAPI document."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from fastapi import FastAPI

from doorstep import __version__
from doorstep.api import problems
from doorstep.api.alerts import alert_routes, alert_rule_routes, silence_routes
from doorstep.api.audit import audit_routes
from doorstep.api.auth import OVER_RATE, TOO_MANY_FAILURES, Authentication
from doorstep.api.batches import batch_routes
from doorstep.api.bulk import bulk_routes, bulk_start_routes
from doorstep.api.channels import channel_routes
from doorstep.api.dead_letters import dead_letter_routes
from doorstep.api.deliveries import delivery_routes
from doorstep.api.docs_page import add_docs
from doorstep.api.endpoints import endpoint_routes
from doorstep.api.events import event_routes
from doorstep.api.frame import Frame
from doorstep.api.health import health_routes
from doorstep.api.ingest import Ingest
from doorstep.api.keys import key_routes
from doorstep.api.methods import Methods
from doorstep.api.openapi import document
from doorstep.api.pipelines import pipeline_routes
from doorstep.api.polling import EventsQuery, InboxQuery, Polling
from doorstep.api.retry_queue import retry_queue_routes
from doorstep.api.routing import add_group, add_plain
from doorstep.api.scraping import metrics_routes
from doorstep.api.sign_in_links import sign_in_link_routes
from doorstep.api.stats import stats_routes
from doorstep.api.throttle import Throttle
from doorstep.api.workers import worker_routes
from doorstep.app import Doorstep
from doorstep.console.links import SignInLinks
from doorstep.console.mounting import add_console
from doorstep.model.ids import uuid7

_GROUPS = (
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
    metrics_routes,
)


def create_application(doorstep: Doorstep, links: SignInLinks | None = None) -> FastAPI:
    """The ASGI application for an opened Doorstep; `links` are those that sign people in to the console."""
    application = FastAPI(
        title="Doorstep",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    application.state.payload_bytes_max = doorstep.settings.payload_bytes_max
    _add_plain(application, doorstep)
    for routes in _GROUPS:
        add_group(application, routes(doorstep))
    settings, clock = doorstep.settings, doorstep.clock
    links = links or SignInLinks(clock)
    add_group(application, sign_in_link_routes(doorstep, links))
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
    application.add_middleware(Frame, new_id=lambda: _new_id(doorstep))
    application.openapi = partial(document, application)  # type: ignore[method-assign]
    return application


def _add_plain(application: FastAPI, doorstep: Doorstep) -> None:
    ingest, polling = Ingest(doorstep), Polling(doorstep)
    add_plain(application, "POST", "/v1/events", ingest.send)
    add_plain(application, "POST", "/v1/events/batch", ingest.send_batch)
    add_plain(application, "GET", "/v1/events", polling.events, EventsQuery.__struct_fields__)
    add_plain(application, "GET", "/v1/events/{event_id}/status", polling.status)
    add_plain(application, "GET", "/v1/inbox", polling.inbox, InboxQuery.__struct_fields__)


def _new_id(doorstep: Doorstep) -> UUID:
    return uuid7(doorstep.clock.now())
