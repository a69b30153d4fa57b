"""The plain routes in the OpenAPI document: FastAPI knows nothing of them, msgspec knows their shapes."""

from __future__ import annotations

from types import UnionType
from typing import Any, NamedTuple, get_args

import msgspec

from doorstep.api.event_items import EventsOut, EventStatusOut, InboxOut
from doorstep.api.ingest import BatchIn, EventIn, Events, ReceiptOut, ReceiptsOut
from doorstep.api.limits import KEY_RULES
from doorstep.api.polling import EventsQuery, InboxQuery

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"


class Plain(NamedTuple):
    """One operation as the document describes it."""

    name: str
    about: str
    answer: Any
    status: int = 200
    body: Any = None
    query: type[msgspec.Struct] | None = None


PLAIN: dict[str, Plain] = {
    "POST /v1/events": Plain(
        "send_event",
        "Send an event, or a list of up to 1,000. A 202 means that it is on stable storage with one delivery for each "
        "matching endpoint. With the header `Idempotency-Key` a repeated request is answered like the first one.",
        ReceiptOut | ReceiptsOut,
        202,
        EventIn | Events,
    ),
    "POST /v1/events/batch": Plain(
        "send_batch",
        "Send up to 1,000 events in one transaction; one receipt each, in the order sent.",
        ReceiptsOut,
        202,
        BatchIn | Events,
    ),
    "GET /v1/events": Plain(
        "list_events", "Events, newest first, without their payloads.", EventsOut, query=EventsQuery
    ),
    "GET /v1/events/{event_id}/status": Plain(
        "read_status", "Where an event stands, without its payload.", EventStatusOut
    ),
    "GET /v1/inbox": Plain(
        "read_inbox",
        "Events that no push endpoint takes and that nobody has acknowledged, oldest first, with their payloads; or "
        "the failed ones, without.",
        InboxOut,
        query=InboxQuery,
    ),
}


def describe_plain(described: Json) -> None:
    """Add these operations and the components that they refer to."""
    schemas = described["components"].setdefault("schemas", {})
    for line, plain in PLAIN.items():
        method, path = line.lower().split(" ")
        described["paths"].setdefault(path, {})[method] = _operation(plain, path, schemas)
    described["paths"]["/v1/events"]["post"]["parameters"] = [_IDEMPOTENCY_KEY]
    for path in ("/v1/events", "/v1/events/batch"):
        _add_mixed(described["paths"][path]["post"], schemas)


def body_of(kind: type[msgspec.Struct]) -> Json:
    """The description of an optional body that msgspec reads, for a FastAPI route."""
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


def _operation(plain: Plain, path: str, schemas: Json) -> Json:
    operation: Json = {
        "tags": ["events"],
        "operationId": plain.name,
        "summary": plain.name.replace("_", " ").capitalize(),
        "description": plain.about,
        "responses": {str(plain.status): {"description": "Done", "content": _json(plain.answer, schemas)}},
    }
    parameters = [*_in_path(path), *_in_query(plain.query)]
    if parameters:
        operation["parameters"] = parameters
    if plain.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(plain.body, schemas)}
    return operation


def _json(kind: Any, schemas: Json) -> Json:
    return {"application/json": {"schema": _schema(kind, schemas)}}


def _schema(kind: Any, schemas: Json) -> Json:
    """msgspec takes a choice of objects only where a tag tells them apart; ours differ by their shape."""
    if isinstance(kind, UnionType):
        return {"anyOf": [_schema(one, schemas) for one in get_args(kind)]}
    (schema,), components = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    for name, shape in components.items():
        assert schemas.setdefault(name, shape) == shape, f"two shapes of the API are named {name}"
    return schema


def _in_path(path: str) -> list[Json]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    uuid = {"type": "string", "format": "uuid"}
    return [{"name": name, "in": "path", "required": True, "schema": uuid} for name in names]


def _in_query(query: type[msgspec.Struct] | None) -> list[Json]:
    if query is None:
        return []
    properties = msgspec.json.schema(query)["$defs"][query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]


def _add_mixed(operation: Json, schemas: Json) -> None:
    operation["responses"]["207"] = {
        "description": "Stored, but for those with the verdict `conflict`: their idempotency key was used before",
        "content": _json(ReceiptsOut, schemas),
    }


_IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same event within 24 hours stores nothing new.",
    "schema": {"type": "string", **KEY_RULES},
}
