"""The application: all routes, the rules that hold for all of them, and the OpenAPI document."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from fastapi import FastAPI

from doorstep import __version__
from doorstep.api import problems
from doorstep.api.auth import Authentication
from doorstep.api.endpoints import endpoint_routes
from doorstep.api.envelope import Envelope
from doorstep.api.events import event_routes
from doorstep.api.health import health_routes
from doorstep.api.ingest import Ingest
from doorstep.api.openapi import document
from doorstep.app import Doorstep
from doorstep.model.ids import uuid7


def create_application(doorstep: Doorstep) -> FastAPI:
    """The ASGI application for an opened Doorstep."""
    application = FastAPI(
        title="Doorstep",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    ingest = Ingest(doorstep)
    application.add_route("/v1/events", ingest.send, methods=["POST"])
    application.add_route("/v1/events/batch", ingest.send_batch, methods=["POST"])
    application.include_router(event_routes(doorstep))
    application.include_router(endpoint_routes(doorstep))
    application.include_router(health_routes(doorstep))
    for error in problems.HANDLED:
        application.add_exception_handler(error, problems.handle)
    application.add_middleware(Authentication, authenticate=doorstep.authenticate)
    application.add_middleware(Envelope, new_id=lambda: _new_id(doorstep))
    application.openapi = partial(document, application)  # type: ignore[method-assign]
    return application


def _new_id(doorstep: Doorstep) -> UUID:
    return uuid7(doorstep.clock.now())
