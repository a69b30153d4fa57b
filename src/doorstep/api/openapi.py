"""The OpenAPI document: FastAPI describes its own routes, this adds the two that are not FastAPI's, and the errors."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from doorstep.api.ingest import BatchIn, BatchOut, EventIn, ReceiptOut
from doorstep.api.problems import MEDIA_TYPE, Problem

_COMPONENT = "#/components/schemas/{name}"


def document(application: FastAPI) -> dict[str, Any]:
    """Made once, then remembered."""
    if application.openapi_schema is None:
        application.openapi_schema = _complete(
            get_openapi(title=application.title, version=application.version, routes=application.routes)
        )
    return application.openapi_schema


def _complete(described: dict[str, Any]) -> dict[str, Any]:
    (event_in, batch_in, receipt_out, batch_out), components = msgspec.json.schema_components(
        (EventIn, BatchIn, ReceiptOut, BatchOut), ref_template=_COMPONENT
    )
    single = {"oneOf": [event_in, {"type": "array", "items": event_in}]}
    described["paths"]["/v1/events"] = {"post": _ingest("send_event", "Send an event", single, receipt_out)}
    described["paths"]["/v1/events/batch"] = {"post": _ingest("send_batch", "Send many events", batch_in, batch_out)}
    schemas = described["components"]["schemas"]
    schemas.update(components, Problem=_PROBLEM)
    for leftover in ("HTTPValidationError", "ValidationError"):
        schemas.pop(leftover, None)
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
    for path, operations in described["paths"].items():
        for operation in operations.values():
            _add_errors(operation, secured=path.startswith("/v1/"))
    return described


def _ingest(name: str, summary: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": ["events"],
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"202": {"description": "Stored", "content": {"application/json": {"schema": answer}}}},
    }


def _add_errors(operation: dict[str, Any], *, secured: bool) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    for problem in Problem:
        if secured and problem.status < 500 or problem is Problem.STORE_UNAVAILABLE:
            responses[str(problem.status)] = {
                "description": problem.title,
                "content": {MEDIA_TYPE: {"schema": {"$ref": _COMPONENT.format(name="Problem")}}},
            }
    if secured:
        operation["security"] = [{"key": []}]


_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [f"urn:doorstep:problem:{problem.code}" for problem in Problem]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
