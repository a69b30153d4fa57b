"""A document pipeline with nine statuses.

    doorstep serve --app examples.protocols:app

    uploaded ─▶ extracting ─▶ grounding ─▶ pending_review ─▶ complete

If the text of a document cannot be extracted, its status between attempts is `extraction_failed`; if its sources cannot
be found, the status is `grounding_failed`. After the third attempt the document is a `dead_letter`, and if nobody acts
on it for a week, it is `archived`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias
from uuid import uuid4

import msgspec
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from doorstep import Doorstep, Entity, Gate, Pipeline, Settings, Stage, Transient
from doorstep.errors import NotFound, NotRetryable
from doorstep.web import Caller, allowed, answer, field_names, json_body, router
from examples.protocols.documents import Documents, table
from examples.protocols.services import Services

VARIABLES = {"RETRY_DELAYS": "retry_delays", "LOG_LEVEL": "log_level"}
DEFAULTS: dict[str, Any] = {"service_name": "protocols", "retry_delays": (5.0, 30.0), "log_format": "json"}
"""Three attempts, with pauses of 5 and 30 seconds: a short outage ends no document."""
RETRYABLE = ("extraction_failed", "grounding_failed", "dead_letter")

Json: TypeAlias = dict[str, Any]


def create(services: Services | None = None, **given: Any) -> Doorstep:
    """The program; `given` are arguments of Doorstep, or settings."""
    options = {name: given.pop(name) for name in ("clock", "telemetry") if name in given}
    settings = Settings.with_defaults(DEFAULTS, VARIABLES, **given)
    program = Doorstep(settings, **options)
    documents = Documents(lambda: program.settings.database_url)
    protocols = pipeline_of(settings, documents, services or Services())
    program.add(protocols)
    program.server.sql("protocol_documents")(table)
    program.server.include_router(routes_of(protocols, documents), prefix="/protocols")
    program.server.include_router(router(protocols, api_keys=True), prefix="/protocols")
    program.server.startup_message(first_command)
    return program


def first_command(url: str, key: str) -> Iterator[str]:
    yield f"The protocols: {url}/protocols, {url}/protocols/<id>, {url}/protocols/<id>/history"
    yield "Next, upload a document:"
    yield ""
    body = """{"text": "Open the valve, as in [pump]."}"""
    yield f"  curl -s {url}/protocols -H \"X-API-Key: {key}\" -d '{body}'"
    yield ""


# -- stages ------------------------------------------------------------------------------------------------------


def pipeline_of(settings: Settings, documents: Documents, services: Services) -> Pipeline:
    protocols = Pipeline(
        "protocol",
        first="uploaded",
        stages=[
            Stage("extracting", failed="extraction_failed"),
            Stage("grounding", failed="grounding_failed"),
            Gate("pending_review"),
        ],
        last="complete",
        dead="dead_letter",
        archived="archived",
        archive_after_days=7,
        policy={"delays": settings.retry_delays, "jitter": 0.0, "name": "protocols"},
    )

    @protocols.stage("extracting")
    def extract(protocol: Entity) -> Json:
        """A plain function, which runs in a thread. Its result replaces the data of the protocol."""
        return protocol.data | services.extract(documents.text(protocol.entity_id))

    @protocols.stage("grounding")
    def ground(protocol: Entity) -> None:
        """It returns nothing, so the data stays as it is."""
        missing = [name for name in protocol.data["cites"] if not services.has_source(name)]
        if missing:
            raise Transient("SOURCE_MISSING", f"{len(missing)} of the sources that it cites cannot be found.")

    return protocols


# -- routes ------------------------------------------------------------------------------------------------------


class Upload(msgspec.Struct, forbid_unknown_fields=True):
    """A new document."""

    text: str
    protocol_id: str | None = None
    """If omitted, one is created."""


class Replacement(msgspec.Struct, forbid_unknown_fields=True):
    """The new text of a document."""

    text: str


class RetryIn(msgspec.Struct, forbid_unknown_fields=True):
    """Why a protocol is retried, for the audit log."""

    reason: str = ""


def routes_of(protocols: Pipeline, documents: Documents) -> APIRouter:
    """The routes beside those of every pipeline: upload, replace, delete with the document, and a retry that leaves
    archived protocols alone.

    Their parameter is `entity_id`, as in the other routes: OpenAPI allows one name for each path.
    """
    routes = APIRouter(tags=["protocol"])

    def sender(caller: Annotated[Caller, allowed("send")]) -> None:
        """Refuse the keys of other organizations, which have no protocols."""
        if caller.org_id != protocols.org_id:
            raise NotFound("this organization has no protocols")

    @routes.post("", status_code=202, dependencies=[Depends(sender)])
    def upload_protocol(body: Annotated[Upload, json_body(Upload)]) -> Response:
        """Upload a document. Its row and its event are written in one transaction."""
        protocol_id = str(uuid4()) if body.protocol_id is None else body.protocol_id
        with field_names(entity_id="protocol_id"):
            protocol = documents.upload(protocols, protocol_id, body.text)
        return answer({"protocol_id": protocol.entity_id, "status": protocol.status}, 202)

    @routes.put("/{entity_id}", status_code=204, dependencies=[Depends(sender)])
    def replace_protocol(entity_id: str, body: Annotated[Replacement, json_body(Replacement)]) -> None:
        """Replace the text of a document, for its next attempt or its retry."""
        documents.replace(entity_id, body.text)

    @routes.post("/{entity_id}/retry")
    async def retry_protocol(
        entity_id: str,
        caller: Annotated[Caller, allowed("act")],
        body: Annotated[RetryIn, json_body(RetryIn, RetryIn())],
    ) -> Json:
        """Restart a failed protocol or a dead letter from the first stage."""
        status = (await caller.client.pipelines.read(protocols.name, entity_id)).status
        if status not in RETRYABLE:
            retryable = ", ".join(RETRYABLE)
            raise NotRetryable(f"protocol {entity_id} is {status} and cannot be retried; only {retryable} can")
        return await caller.client.pipelines.retry(protocols.name, entity_id, reason=body.reason)

    @routes.delete("/{entity_id}", status_code=204)
    async def delete_protocol(entity_id: str, caller: Annotated[Caller, allowed("act")]) -> None:
        """Delete a protocol, its history and its document, regardless of its status."""
        await caller.client.pipelines.read(protocols.name, entity_id)
        # The document first: if the second step fails, the protocol is still there, and can be deleted again.
        await run_in_threadpool(documents.delete, entity_id)
        await caller.client.pipelines.delete(protocols.name, entity_id)

    return routes


app = create()
