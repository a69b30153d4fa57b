"""An SMS gateway: batches of messages go to a carrier, every submission is logged, failed batches can be resubmitted.

    doorstep serve --app examples.sms:app

A batch is a batch of Doorstep. This program has it under the names that its clients know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from doorstep import DeadLetter, Doorstep, Settings
from doorstep.schemas.deliveries import Attempt
from doorstep.web import Caller, allowed, answer, field_names, iso, json_body
from examples.sms.gateway import CARRIER_CODES, Gateway

BATCH = "sms.batch"
VARIABLES = {"RETRY_DELAYS": "retry_delays", "LOG_LEVEL": "log_level"}
DEFAULTS: dict[str, Any] = {"service_name": "sms", "retry_delays": (300.0, 600.0, 1_200.0), "log_format": "json"}
RESPONSE_CHARS_MAX = 500

Json: TypeAlias = dict[str, object]


def create(gateway: Gateway | None = None, **given: Any) -> Doorstep:
    """The program; `given` are arguments of Doorstep, or settings."""
    options = {name: given.pop(name) for name in ("clock", "telemetry") if name in given}
    settings = Settings.with_defaults(DEFAULTS, VARIABLES, **given)
    program = Doorstep(settings, **options)
    policy = {"delays": settings.retry_delays, "jitter": 0.0, "name": "sms"}
    submit = (gateway or Gateway()).submit
    program.batch(BATCH, name="carrier", policy=policy, code_map=CARRIER_CODES)(submit)

    @program.on_dead_letter
    def alert(letter: DeadLetter) -> None:
        """Tell operations, in the log, about each batch that has finally failed."""
        if letter.event_type == BATCH:
            error = {"error_code": letter.code, "error_message": letter.reason}
            attempts: Json = {"batch_id": str(letter.event_id), "attempts": letter.attempts}
            program.telemetry.note(program.clock.now(), "error", "batch failed", **attempts, **error)

    program.server.include_router(routes_of(program))
    program.server.startup_message(first_command)
    return program


def first_command(url: str, key: str) -> Iterator[str]:
    yield f"The SMS gateway: {url}/batches, {url}/batches/<id>, {url}/batches/<id>/attempts"
    yield "Next, submit a batch:"
    yield ""
    body = """{"messages": [{"to": "+15550100", "text": "See you at nine."}]}"""
    yield f"  curl -s {url}/batches -H \"X-API-Key: {key}\" -d '{body}'"
    yield ""


# -- routes ------------------------------------------------------------------------------------------------------

Looking: TypeAlias = Annotated[Caller, allowed("look")]


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One text message."""

    to: str
    text: str


class BatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """A new batch."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    idempotency_key: str | None = None
    """If the same batch is submitted again with this key within 24 hours, the response is the first batch."""


class ResubmitIn(msgspec.Struct, forbid_unknown_fields=True):
    """Why a batch is resubmitted, for the audit log."""

    reason: str = ""


def routes_of(program: Doorstep) -> APIRouter:
    routes = APIRouter(prefix="/batches", tags=["batches"])

    @routes.post("", status_code=202)
    async def submit_batch(
        caller: Annotated[Caller, allowed("send")], body: Annotated[BatchIn, json_body(BatchIn)]
    ) -> Response:
        """Submit a batch. A 202 means that it is durably stored."""
        with field_names(payload="messages"):
            batch = await program.batches.submit(
                BATCH,
                {"messages": body.messages},
                idempotency_key=body.idempotency_key,
                org_id=caller.org_id,
                correlation_id=caller.correlation_id,
            )
        return answer(shown(batch), 202)

    @routes.get("")
    async def list_batches(
        caller: Looking,
        status: Literal["PENDING", "CONFIRMED", "FAILED"] | None = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
        cursor: str | None = None,
    ) -> Response:
        """Batches, newest first; with `status`, only those with this submission status."""
        page = await caller.client.batches.page(status=status, limit=limit, cursor=cursor)
        return answer({"batches": [shown(one) for one in page], "pagination": page.pagination})

    @routes.get("/{batch_id}")
    async def read_batch(batch_id: str, caller: Looking) -> Response:
        """One batch with its last error and its next retry."""
        return answer(shown(await caller.client.batches.read(batch_id)))

    @routes.get("/{batch_id}/attempts")
    async def list_attempts(batch_id: str, caller: Looking) -> Response:
        """Every submission of a batch, in order, also those before a resubmission."""
        batch = await caller.client.batches.read(batch_id)
        attempts = await caller.client.deliveries.attempts(batch.delivery_id)
        return answer({"attempts": [attempt_shown(one) for one in attempts]})

    @routes.post("/{batch_id}/resubmit")
    async def resubmit_batch(
        batch_id: str,
        caller: Annotated[Caller, allowed("act")],
        body: Annotated[ResubmitIn, json_body(ResubmitIn, ResubmitIn())],
    ) -> Response:
        """Submit a FAILED batch again immediately, with its counter at 0. In any other status, the response is a 409."""
        batch = await caller.client.batches.resubmit(batch_id, reason=body.reason)
        who_and_why = {"batch_id": batch_id, "by": caller.name, "reason": body.reason}
        program.telemetry.note(program.clock.now(), "info", "batch resubmitted", **who_and_why)
        return answer(shown(batch))

    return routes


def shown(batch: Any) -> Json:
    """A batch under the names that clients know. `held` says why a batch waits, for example because its carrier is cut
    off after too many failures."""
    held = batch.held
    return {
        "batch_id": batch.batch_id,
        "submission_status": batch.status,
        "current_retry_attempt": batch.retry_attempts,
        "last_error_code": batch.error_code,
        "last_error_message": batch.error_reason,
        "next_retry_at": iso(batch.next_retry_at),
        "held": None if held is None else {"reason": _of_carrier(held.reason), "until": iso(held.until)},
        "created_at": iso(batch.created_at),
    }


def _of_carrier(reason: str) -> str:
    """`The endpoint's circuit is open …` in the words of the clients: the only endpoint is the carrier."""
    return reason.replace("The endpoint", "The carrier")


def attempt_shown(attempt: Attempt) -> Json:
    return {
        "attempt_number": attempt.number,
        "attempted_at": iso(attempt.started_at),
        "error_code": attempt.error_code,
        "error_message": attempt.error_reason or None,
        "carrier_response": attempt.response_body[:RESPONSE_CHARS_MAX],
        "next_retry_at": iso(attempt.next_retry_at),
    }


app = create()
