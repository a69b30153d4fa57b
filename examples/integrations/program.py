"""The integration hub: failed deliveries wait in a retry queue, then in a dead-letter queue, for administrators.

    doorstep serve --app examples.integrations:app

An entry of these queues is a delivery of Doorstep. This program has them under the names and with the statuses that its
clients know, words the console's two screens as its administrators know them, and has a view for people who look with
SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep import Doorstep, Settings, Sql
from doorstep.schemas.accounts import RoleName
from doorstep.web import Caller, allowed, answer, field_names, json_body
from examples.integrations.endpoints import EXPONENTIAL, Integrations
from examples.integrations.queues import (
    BULK_COMPLETE,
    BULK_RUNNING,
    DEFAULT_POLICY,
    DELETED,
    IN_DLQ,
    MAX_RETRIES,
    RETRIED,
    STATUS_OF,
    BulkRetried,
    IntegrationQueues,
    Listed,
    Retried,
)
from examples.integrations.systems import Erp, Partner

DEFAULTS: dict[str, Any] = {"service_name": "integrations", "circuits": False, "log_format": "json"}
WORDING = {
    "event_type": "Event Type",
    "external_system": "External System",
    "error": "Error",
    "retry_count": "Retry Count",
    "next_retry_at": "Next Retry At",
    "first_failed_at": "Created At",
    "retry_now": "Retry Now",
    "skip": "Skip",
    "view_log": "View Log",
    "retry_dead_letter": "Manual Retry",
    "resolve": "Mark Resolved",
    "delete": "Delete",
    "skip_question": "Skip retry and move to Dead Letter Queue?",
    "delete_question": "Permanently delete this entry?",
    "retry_succeeded": RETRIED,
    "dead_letter_retry_succeeded": RETRIED,
    "deleted": DELETED,
    "bulk_retry_running": BULK_RUNNING,
    "bulk_retry_finished": BULK_COMPLETE,
}


def create(integrations: Integrations | None = None, **given: Any) -> Doorstep:
    """The program; `given` are arguments of Doorstep, or settings."""
    options = {name: given.pop(name) for name in ("clock", "telemetry") if name in given}
    program = Doorstep(Settings.with_defaults(DEFAULTS, **given), policy=EXPONENTIAL, **options)
    (integrations or Integrations(Partner(), Erp())).declare(program)
    program.server.include_router(routes, prefix="/api/integrations")
    program.server.include_router(screens)
    program.server.console_wording(**WORDING)
    program.server.sql("integration_retry_queue")(queue_view)
    program.server.sql("calculate_next_retry")(next_retry_function)
    program.server.startup_message(first_command)
    return program


def first_command(url: str, key: str) -> Iterator[str]:
    yield f"The retry queue: {url}/integrations/logs/retry-queue, {url}/api/integrations/retry-queue"
    yield f"The dead-letter queue: {url}/integrations/logs/dead-letter-queue, {url}/api/integrations/dead-letter-queue"
    yield "Next, send an event to the ERP:"
    yield ""
    body = """{"event_type": "stock.counted", "payload": {"article": "A-1", "count": 5}}"""
    yield f"  curl -s {url}/v1/events -H \"X-API-Key: {key}\" -d '{body}'"
    yield ""


# -- routes ------------------------------------------------------------------------------------------------------

routes = APIRouter(tags=["integrations"])
screens = APIRouter(prefix="/integrations/logs", include_in_schema=False)
ROLES: dict[str, RoleName] = {"ADMIN": "admin", "IT_MANAGER": "operator", "USER": "viewer"}
"""The roles of the program's clients. Administrators and IT managers act, others look."""


def _acting(caller: Annotated[Caller, allowed("look")]) -> Caller:
    if not caller.may("act"):
        raise HTTPException(403, "only ADMIN and IT_MANAGER may do that")
    return caller


def _administering(caller: Annotated[Caller, allowed("look")]) -> Caller:
    if not caller.may("administer"):
        raise HTTPException(403, "only ADMIN may do that")
    return caller


Looking: TypeAlias = Annotated[Caller, allowed("look")]
Acting: TypeAlias = Annotated[Caller, Depends(_acting)]
Administering: TypeAlias = Annotated[Caller, Depends(_administering)]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=100)]
Wait: TypeAlias = Annotated[float, Query(ge=0, le=30)]
"""How many seconds to wait for an outcome before a response of 202."""


class KeyIn(msgspec.Struct, forbid_unknown_fields=True):
    """A new key."""

    name: str
    role: Literal["ADMIN", "IT_MANAGER", "USER"]


class EntriesIn(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of the retry queue."""

    ids: Annotated[tuple[UUID, ...], msgspec.Meta(min_length=1, max_length=1_000)]


@routes.get("/retry-queue")
async def list_retry_queue(
    caller: Looking,
    status: Literal["pending", "in_progress"] | None = None,
    event_type: str | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Response:
    """Entries that wait for a retry or are being retried, next retry first."""
    return _page(await _queues(caller).retry_queue(status=status, event_type=event_type, limit=limit, cursor=cursor))


@routes.post("/retry-queue/bulk-retry")
async def bulk_retry(
    caller: Acting, body: Annotated[EntriesIn, json_body(EntriesIn)], wait_seconds: Wait = 10
) -> Response:
    """Retry entries in parallel. 202 if they are still being retried after `wait_seconds`."""
    return _bulk(await _queues(caller).bulk_retry(body.ids, wait_seconds=wait_seconds))


@routes.get("/retry-queue/bulk-retry/{bulk_id}")
async def read_bulk_retry(bulk_id: str, caller: Looking) -> Response:
    """The progress of a bulk retry."""
    return _bulk(await _queues(caller).bulk_retried(bulk_id))


@routes.get("/retry-queue/{entry_id}")
async def read_entry(entry_id: str, caller: Looking) -> Response:
    """One entry, whatever became of it."""
    return answer(await _queues(caller).entry(entry_id))


@routes.post("/retry-queue/{entry_id}/retry")
async def retry(entry_id: str, caller: Acting, wait_seconds: Wait = 10) -> Response:
    """Retry an entry now. 202 if it is still being retried after `wait_seconds`."""
    return _retried(await _queues(caller).manual_retry(entry_id, wait_seconds=wait_seconds))


@routes.post("/retry-queue/{entry_id}/skip")
async def skip(entry_id: str, caller: Acting) -> Response:
    """Move an entry to the dead-letter queue."""
    return answer(await _queues(caller).skip(entry_id))


@routes.get("/dead-letter-queue")
async def list_dead_letter_queue(
    caller: Looking,
    event_type: str | None = None,
    date_from: datetime | None = None,
    date_to: datetime | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Response:
    """Dead letters, newest first: those that came to this queue from `date_from` to before `date_to`."""
    filters = {"event_type": event_type, "died_from": date_from, "died_before": date_to}
    with field_names(died_from="date_from", died_before="date_to"):
        return _page(await _queues(caller).dead_letter_queue(**filters, limit=limit, cursor=cursor))


@routes.post("/dead-letter-queue/{entry_id}/retry")
async def retry_dead_letter(entry_id: str, caller: Acting, wait_seconds: Wait = 10) -> Response:
    """Move an entry back to the retry queue: it is retried in five seconds, with its retry count at zero. 202 if the
    outcome is not known after `wait_seconds`."""
    return _retried(await _queues(caller).retry_dead_letter(entry_id, wait_seconds=wait_seconds))


@routes.post("/dead-letter-queue/{entry_id}/resolve")
async def resolve(entry_id: str, caller: Acting, reason: Annotated[str, Query(max_length=500)] = "") -> Response:
    """Mark a dead letter as resolved. The reason is for the audit log."""
    return answer(await _queues(caller).resolve(entry_id, reason=reason))


@routes.delete("/dead-letter-queue/{entry_id}")
async def delete(entry_id: str, caller: Acting) -> Response:
    """Delete a dead letter. Its log entry is kept."""
    return answer({"message": await _queues(caller).delete(entry_id)})


@routes.get("/logs")
async def list_log(
    caller: Looking, event_type: str | None = None, limit: Limit = 50, cursor: str | None = None
) -> Response:
    """The integration log, newest first: what was sent to which system, successes included."""
    return _page(await _queues(caller).log(event_type=event_type, limit=limit, cursor=cursor))


@routes.get("/logs/{log_id}")
async def read_log(log_id: str, caller: Looking) -> Response:
    """One entry of the log with its last response and every attempt."""
    return answer(await _queues(caller).log_entry(log_id))


@routes.post("/keys", status_code=201)
async def create_key(caller: Administering, body: Annotated[KeyIn, json_body(KeyIn)]) -> Response:
    """Create a key for a colleague. It is shown only once. The audit log names its owner."""
    created = await caller.client.keys.create(body.name, ROLES[body.role])
    return answer({"name": created.name, "role": body.role, "key": created.key}, 201)


@routes.get("/me")
async def read_caller(caller: Looking) -> Response:
    """Whose key it is, and the role."""
    roles = {role: name for name, role in ROLES.items()}
    return answer({"name": caller.name, "role": roles[caller.role.value]})


@screens.get("/retry-queue")
async def retry_queue_screen(request: Request) -> Response:
    return RedirectResponse(_with_query("/console/retry-queue", request), 303)


@screens.get("/dead-letter-queue")
async def dead_letter_queue_screen(request: Request) -> Response:
    return RedirectResponse(_with_query("/console/dead-letters/letters", request), 303)


def _queues(caller: Caller) -> IntegrationQueues:
    return IntegrationQueues(caller.client, caller.org_id)


def _page(listed: Listed) -> Response:
    return answer({"entries": listed.entries, "pagination": listed.pagination})


def _retried(retried: Retried) -> Response:
    return answer(retried._asdict(), 202 if retried.message is None else 200)


def _bulk(bulk: BulkRetried) -> Response:
    return answer(bulk._asdict(), 200 if bulk.complete else 202)


def _with_query(path: str, request: Request) -> str:
    return f"{path}?{request.url.query}" if request.url.query else path


# -- SQL ---------------------------------------------------------------------------------------------------------

NEVER = 2**62
"""The due time of a delivery that waits without an end."""


def queue_view(sql: Sql) -> list[str]:
    """The view `integration_retry_queue`: one row for each delivery that failed at least once."""
    cases = " ".join(f"WHEN '{state}' THEN '{status}'" for state, status in STATUS_OF.items())
    in_dlq = f"d.state IN {IN_DLQ}"
    waiting = f"d.state = 'pending' AND d.due_at < {NEVER} AND p.state = 'active'"
    policy = (
        "p.document::json -> 'policy' ->> 'name'"
        if sql.database == "postgresql"
        else "json_extract(p.document, '$.policy.name')"
    )
    failed = "a.delivery_id = d.id AND a.number = d.attempt AND a.late = 0 AND a.category IS NOT NULL"
    stack = f"SELECT a.detail FROM doorstep_attempts a WHERE {failed} ORDER BY a.move DESC LIMIT 1"
    columns = {
        "id": sql.uuid("d.uid"),
        "org_id": sql.uuid("o.uid"),
        "log_id": sql.uuid("d.uid"),
        "retry_count": "d.retry_attempts",
        "max_retries": str(MAX_RETRIES),
        "retry_policy": f"coalesce({policy}, '{DEFAULT_POLICY}')",
        "next_retry_at": sql.time(f"(CASE WHEN {waiting} THEN d.due_at END)"),
        "last_retry_at": sql.time("(CASE WHEN d.attempt > 1 THEN d.last_attempt_at END)"),
        "status": f"CASE d.state {cases} END",
        "in_dlq": in_dlq,
        "error_message": "NULLIF(d.reason, '')",
        "error_stack": f"NULLIF(({stack}), '')",
        "created_at": sql.time("coalesce(d.first_failed_at, d.settled_at, d.created_at)"),
        "updated_at": sql.time("coalesce(d.settled_at, d.last_attempt_at, d.created_at)"),
    }
    rows = (
        "doorstep_deliveries d JOIN doorstep_endpoints p ON p.id = d.endpoint_id JOIN doorstep_orgs o ON o.id = d.org_id"
        f" WHERE d.deleted_at IS NULL AND p.name IS NOT NULL AND (d.first_failed_at IS NOT NULL OR {in_dlq})"
    )
    selected = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
    return sql.view("integration_retry_queue", f"SELECT {selected} FROM {rows}")


def next_retry_function(sql: Sql) -> list[str]:
    """The function `calculate_next_retry`: the time of the next retry after `retry_count` retries, NULL if the entry
    waits for an administrator."""
    return [NEXT_RETRY] if sql.database == "postgresql" else []


NEXT_RETRY = """
CREATE OR REPLACE FUNCTION calculate_next_retry(retry_count integer, retry_policy text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    delays integer[] := CASE retry_policy WHEN 'immediate' THEN '{5}' WHEN 'exponential' THEN '{5, 30, 300}' END;
BEGIN
    IF retry_policy = 'manual' THEN
        RETURN NULL;
    ELSIF delays IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('retry_policy must be immediate, exponential or manual, got %s', retry_policy);
    END IF;
    RETURN now() + make_interval(secs => delays[least(greatest(retry_count, 0) + 1, cardinality(delays))]);
END $$"""


app = create()
