"""The webhook log: every delivery is recorded, failures are retried, old deliveries are removed.

    doorstep serve --app examples.webhooks:app

A webhook is an endpoint of Doorstep, and a delivery is a delivery. This program has them under the names and with the
statuses that its clients know, and as views for people who look with SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from pydantic import AwareDatetime
from starlette.responses import Response

from doorstep import CircuitRules, Doorstep, Settings, Sql
from doorstep.client import AsyncClient, NotFound
from doorstep.errors import InvalidInput
from doorstep.errors import NotFound as UnknownWebhook
from doorstep.schemas.deliveries import Delivery
from doorstep.schemas.endpoints import Endpoint
from doorstep.web import Caller, allowed, answer, iso, json_body

DEFAULTS: dict[str, Any] = {
    "service_name": "webhooks",
    "retry_delays": (60.0, 300.0, 900.0),
    "max_retry_attempts": 3,
    "retention_days": 7.0,
    "dead_retention_days": 7.0,
    "inbox_retention_days": 7.0,
    "log_format": "json",
}
CIRCUIT = CircuitRules(failures_max=5, probe_seconds_min=300, open_seconds=300)
"""After five failures in a row, the webhook is not called for five minutes."""

Json: TypeAlias = dict[str, object]
Status: TypeAlias = Literal["pending", "success", "failed"]
STATES: dict[Status, tuple[str, ...]] = {
    "pending": ("pending", "in_progress"),
    "success": ("delivered", "resolved"),
    "failed": ("dead", "archived", "cancelled"),
}
"""Each status of this program, with the states of a delivery that it stands for."""
STATUS_OF: dict[str, Status] = {state: status for status, states in STATES.items() for state in states}


def create(**given: Any) -> Doorstep:
    """The program; `given` are arguments of Doorstep, or settings."""
    options = {name: given.pop(name) for name in ("clock", "telemetry") if name in given}
    settings = Settings.with_defaults(DEFAULTS, **given)
    # Every failure is retried after exactly these delays, whatever the receiver asks for.
    policy = {"delays": settings.retry_delays, "jitter": 0.0, "ignore_retry_after": True, "name": "webhooks"}
    defaults: Any = {"retry_on": ["*"], "code_map": {"410": "REJECTED"}, "circuit": CIRCUIT}
    program = Doorstep(settings, policy=policy, endpoint_defaults=defaults, **options)
    program.server.include_router(routes)
    program.server.sql("webhook_deliveries")(deliveries_view)
    program.server.sql("webhooks")(webhooks_view)
    program.server.startup_message(first_command)
    return program


def first_command(url: str, key: str) -> Iterator[str]:
    yield f"The webhook log: {url}/webhooks and {url}/webhook-deliveries; send events to {url}/v1/events"
    yield "Next, register a webhook:"
    yield ""
    body = """{"url": "https://shop.example/hook", "event_types": ["order.*"]}"""
    yield f"  curl -s {url}/webhooks -H \"X-API-Key: {key}\" -d '{body}'"
    yield ""


# -- webhooks ----------------------------------------------------------------------------------------------------

routes = APIRouter(tags=["webhooks"])
Looking: TypeAlias = Annotated[Caller, allowed("look")]
Acting: TypeAlias = Annotated[Caller, allowed("act")]


class WebhookIn(msgspec.Struct, forbid_unknown_fields=True):
    """A new webhook."""

    url: str
    event_types: tuple[str, ...] = ("*",)
    secret: str | None = None
    """`whsec_…`; if omitted, one is created."""
    name: str | None = None
    enabled: bool = True


class WebhookPatch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a webhook. A new secret is used from the next try on."""

    url: str | None = None
    event_types: tuple[str, ...] | None = None
    secret: str | None = None
    name: str | None = None
    enabled: bool | None = None


@routes.post("/webhooks", status_code=201)
async def create_webhook(caller: Acting, body: Annotated[WebhookIn, json_body(WebhookIn)]) -> Response:
    """Register a webhook. The response contains its secret, which is shown only once."""
    own: Any = {} if body.secret is None else {"secret": body.secret}
    name = body.name or f"{_host_of(body.url)} {token_hex(4)}"
    created = await caller.client.endpoints.create(name=name, url=body.url, event_types=body.event_types, **own)
    if not body.enabled:
        await caller.client.endpoints.pause(created.endpoint_id, reason="disabled")
    shown = await _webhook(caller.client, created.endpoint_id)
    return answer(shown | {"secret": body.secret or created.secret}, 201)


@routes.get("/webhooks")
async def list_webhooks(caller: Looking, limit: int = 50, cursor: str | None = None) -> Response:
    """The webhooks, oldest first."""
    page = await caller.client.endpoints.page(limit=limit, cursor=cursor)
    shown = [_webhook_shown(one, await caller.client.endpoints.circuit(one.endpoint_id)) for one in page]
    return answer({"webhooks": shown, "pagination": page.pagination})


@routes.get("/webhooks/{webhook_id}")
async def read_webhook(webhook_id: str, caller: Looking) -> Response:
    """One webhook with its circuit; its secret is never shown."""
    return answer(await _webhook(caller.client, webhook_id))


@routes.patch("/webhooks/{webhook_id}")
async def change_webhook(
    webhook_id: str, caller: Acting, body: Annotated[WebhookPatch, json_body(WebhookPatch)]
) -> Response:
    """Change a webhook. While it is not enabled, it is not called, and its deliveries wait."""
    endpoints = caller.client.endpoints
    changes: Any = {name: getattr(body, name) for name in ("url", "event_types", "name")}
    if changes := {name: value for name, value in changes.items() if value is not None}:
        await endpoints.change(webhook_id, **changes)
    if body.secret is not None:
        await endpoints.rotate_secret(webhook_id, secret=body.secret, overlap_seconds=0)
    enabled = (await endpoints.read(webhook_id)).state == "active"
    if body.enabled is True and not enabled:
        await endpoints.resume(webhook_id)
    elif body.enabled is False and enabled:
        await endpoints.pause(webhook_id, reason="disabled")
    return answer(await _webhook(caller.client, webhook_id))


@routes.delete("/webhooks/{webhook_id}", status_code=204)
async def delete_webhook(webhook_id: str, caller: Acting) -> None:
    """Delete a webhook. Its waiting deliveries end as failed."""
    await caller.client.endpoints.delete(webhook_id)


def _host_of(url: str) -> str:
    """The host of a URL, for a name. The URL itself may be longer than a name, and is checked later."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    return re.sub(r"[^\w.-]", "", host)[:60] or "webhook"


async def _webhook(client: AsyncClient, webhook_id: str | UUID) -> Json:
    endpoint = await client.endpoints.read(webhook_id)
    if endpoint.state == "deleted":
        raise UnknownWebhook(f"no webhook {webhook_id}")
    return _webhook_shown(endpoint, await client.endpoints.circuit(endpoint.endpoint_id))


def _webhook_shown(endpoint: Endpoint, circuit: Any) -> Json:
    return {
        "webhook_id": endpoint.endpoint_id,
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": endpoint.event_types,
        "enabled": endpoint.state == "active",
        "consecutive_failures": circuit.failures,
        "circuit_open_until": None if circuit.state == "closed" else iso(circuit.until),
        "created_at": iso(endpoint.created_at),
    }


# -- deliveries --------------------------------------------------------------------------------------------------


@routes.get("/webhook-deliveries")
async def list_deliveries(
    caller: Looking,
    webhook_id: UUID | None = None,
    status: Status | None = None,
    next_retry_before: AwareDatetime | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    cursor: str | None = None,
) -> Response:
    """Deliveries, newest first, successes included. With `next_retry_before`, those that will be retried before this
    time, next retry first; pages may then be shorter."""
    if next_retry_before is not None:
        if status is not None:
            raise InvalidInput("status", "cannot be combined with next_retry_before, which finds pending deliveries")
        page = await caller.client.retry_queue.page(endpoint_id=webhook_id, limit=limit, cursor=cursor)
        due = [one for one in page if one.next_retry_at is not None and one.next_retry_at < next_retry_before]
        return await _page(caller, due, limit, page.pagination.cursor)
    states: tuple[Any, ...] = STATES[status] if status is not None else (None,)
    place, _, inner = (cursor or "0.").partition(".")
    if place not in map(str, range(len(states))):
        raise InvalidInput("cursor", "is not the cursor of a page with the same filters; leave it out")
    state = states[int(place)]
    found = await caller.client.deliveries.page(endpoint_id=webhook_id, state=state, limit=limit, cursor=inner or None)
    return await _page(caller, list(found), limit, _cursor_after(states, state, found.pagination.cursor))


def _cursor_after(states: tuple[Any, ...], state: Any, inner: str | None) -> str | None:
    """The cursor of the next page: the states of a status are listed one after another."""
    place = states.index(state)
    if inner is not None:
        return f"{place}.{inner}"
    return f"{place + 1}." if place + 1 < len(states) else None


@routes.get("/webhook-deliveries/{delivery_id}")
async def read_delivery(delivery_id: str, caller: Looking) -> Response:
    """One delivery with its payload."""
    return answer(await _delivery(caller.client, await caller.client.deliveries.read(delivery_id)))


async def _page(caller: Caller, found: list[Any], limit: int, cursor: str | None) -> Response:
    shown = [await _delivery(caller.client, one) for one in found]
    pagination = {"limit": limit, "cursor": cursor, "has_more": cursor is not None}
    return answer({"deliveries": shown, "pagination": pagination})


async def _delivery(client: AsyncClient, one: Delivery) -> Json:
    payload = await _payload(client, one.delivery_id)
    return {
        "delivery_id": one.delivery_id,
        "webhook_id": one.endpoint_id,
        "event_id": one.event_id if payload is not None else None,
        "event_type": one.event_type,
        "payload": payload,
        "status": STATUS_OF[one.state],
        "attempts": one.attempts,
        "last_attempt_at": iso(one.last_attempt_at),
        "next_retry_at": iso(one.next_retry_at),
        "response_code": one.response_code,
        "error_message": await _error(client, one),
        "created_at": iso(one.created_at),
    }


async def _payload(client: AsyncClient, delivery_id: UUID) -> msgspec.Raw | None:
    """The payload; None if the event is gone."""
    try:
        return msgspec.Raw(await client.deliveries.payload(delivery_id))
    except NotFound:
        return None


async def _error(client: AsyncClient, one: Any) -> str | None:
    """The last error as a sentence. Lists have it; for one delivery, it is that of its last attempt."""
    if hasattr(one, "error_reason"):
        return str(one.error_reason) if one.error_reason is not None else None
    attempts = (await client.deliveries.attempts(one.delivery_id)).items
    return attempts[-1].error_reason if attempts and one.error_code is not None else None


# -- SQL ---------------------------------------------------------------------------------------------------------


NEVER = 2**62
"""The due time of a delivery that waits without an end."""


def deliveries_view(sql: Sql) -> list[str]:
    """The view `webhook_deliveries`: one row for each delivery, successes included. Long payloads are in a table of their
    own on SQLite only; on PostgreSQL, people could not read this table."""
    payload, long = "d.payload, e.payload", ""
    if sql.database == "sqlite":
        payload, long = f"{payload}, l.payload", " LEFT JOIN doorstep_payloads l ON l.event_id = d.event_id"
    cases = " ".join(f"WHEN '{state}' THEN '{status}'" for state, status in STATUS_OF.items())
    retry_at = "CASE WHEN c.state <> 'closed' AND c.until > d.due_at AND NOT d.forced THEN c.until ELSE d.due_at END"
    waiting = f"d.state = 'pending' AND d.attempt > 0 AND d.due_at < {NEVER} AND p.state = 'active'"
    columns = {
        "id": "d.id",
        "delivery_id": sql.uuid("d.uid"),
        "webhook_id": sql.uuid("p.uid"),
        "event_id": f"CASE WHEN e.deleted_at IS NULL THEN {sql.uuid('e.uid')} END",
        "event_type": "e.event_type",
        "payload": sql.json(f"coalesce({payload})"),
        "status": f"CASE d.state {cases} END",
        "attempts": "d.attempt",
        "last_attempt_at": sql.time("d.last_attempt_at"),
        "next_retry_at": sql.time(f"(CASE WHEN {waiting} THEN {retry_at} END)"),
        "response_code": "d.response_code",
        "error_message": "d.reason",
        "created_at": sql.time("d.created_at"),
    }
    rows = (
        f"doorstep_deliveries d LEFT JOIN doorstep_events e ON e.id = d.event_id{long}"
        " JOIN doorstep_endpoints p ON p.id = d.endpoint_id LEFT JOIN doorstep_circuits c ON c.endpoint_id = p.id"
        " WHERE d.deleted_at IS NULL"
    )
    return sql.view("webhook_deliveries", _select(columns, rows))


def webhooks_view(sql: Sql) -> list[str]:
    """The view `webhooks`: one row for each webhook that is not deleted."""
    columns = {
        "id": "p.id",
        "webhook_id": sql.uuid("p.uid"),
        "name": "p.name",
        "enabled": "p.state = 'active'",
        "consecutive_failures": "coalesce(c.failures, 0)",
        "circuit_open_until": sql.time("(CASE WHEN c.state <> 'closed' THEN c.until END)"),
    }
    rows = "doorstep_endpoints p LEFT JOIN doorstep_circuits c ON c.endpoint_id = p.id WHERE p.state <> 'deleted'"
    return sql.view("webhooks", _select(columns, f"{rows} AND p.name IS NOT NULL"))


def _select(columns: dict[str, str], rows: str) -> str:
    return f"SELECT {', '.join(f'{expression} AS {name}' for name, expression in columns.items())} FROM {rows}"


app = create()
