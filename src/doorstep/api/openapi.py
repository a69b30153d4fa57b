"""The OpenAPI document: FastAPI describes its own routes, this adds the plain ones, permissions, errors and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from doorstep.api.access import ROUTES, Access
from doorstep.api.examples import add_examples
from doorstep.api.plain_operations import REFERENCE, describe_plain
from doorstep.api.problems import MEDIA_TYPE, Problem
from doorstep.model.org import Role
from doorstep.model.permission import roles_with

ABOUT = """Reliable delivery: events are accepted once, delivered to every matching endpoint, retried with growing
pauses, and kept as dead letters where that fails.

Send your key in the header `X-API-Key` (or `Authorization: Bearer`). Times are ISO 8601 in UTC. Errors are
`application/problem+json`. Lists come in pages: pass `pagination.cursor` on as `cursor` while `has_more` is true.
What does not exist and what belongs to another organization answer the same 404."""


def document(application: FastAPI) -> dict[str, Any]:
    """Made once, then remembered."""
    if application.openapi_schema is None:
        described = get_openapi(
            title=application.title, version=application.version, description=ABOUT, routes=application.routes
        )
        application.openapi_schema = _complete(described)
    return application.openapi_schema


def _complete(described: dict[str, Any]) -> dict[str, Any]:
    describe_plain(described)
    components = described["components"]
    components["schemas"]["Problem"] = _PROBLEM
    for leftover in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(leftover, None)
    components["securitySchemes"] = {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    for line, operation in operations(described):
        _secure(operation, ROUTES.get(line))
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _without_null(parameter["schema"])
        _add_errors(operation, list(_problems(line, operation)))
    described["paths"] = dict(sorted(described["paths"].items()))
    add_examples(described)
    return described


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation with its line in the table of routes: `GET /v1/events`."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _secure(operation: dict[str, Any], access: Access | None) -> None:
    if access is None:
        return
    operation["security"] = [{"key": []}, {"bearer": []}]
    operation["x-permission"] = access.permission.value
    operation["x-roles"] = roles_with(access.permission)
    if access.default_org:
        operation["x-default-organization-only"] = True


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """There is no way to write null in a query: what is not wanted is left out."""
    forms: list[dict[str, Any]] = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    if len(forms) != 1:
        return schema
    return {name: value for name, value in schema.items() if name not in ("anyOf", "default")} | forms[0]


def _problems(line: str, operation: dict[str, Any]) -> Iterator[Problem]:
    """What this route can really answer with, besides success."""
    access = ROUTES.get(line)
    if "requestBody" in operation:
        yield from (Problem.INVALID_JSON, Problem.TOO_LARGE)
    yield Problem.INVALID_INPUT
    if access is None:
        if line == "GET /readyz":
            yield Problem.STORE_UNAVAILABLE
        return
    yield from (Problem.UNAUTHENTICATED, Problem.OVERLOADED, Problem.STORE_UNAVAILABLE)
    if access.default_org or len(roles_with(access.permission)) < len(Role):
        yield Problem.FORBIDDEN
    if "{" in line or access.not_found:
        yield Problem.NOT_FOUND
    if line.endswith("{entity_id}/retry"):
        yield Problem.NOT_RETRYABLE
    if access.conflict:
        yield Problem.CONFLICT


def _add_errors(operation: dict[str, Any], problems: list[Problem]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    for problem in sorted(problems, key=lambda problem: problem.status):
        status = str(problem.status)
        shared = responses[status]["description"] + "; or: " if status in responses else ""
        responses[status] = _error(problem) | {"description": shared + problem.title}


def _error(problem: Problem) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": problem.title,
        "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}, "example": _example(problem)}},
    }
    if problem in (Problem.OVERLOADED, Problem.STORE_UNAVAILABLE):
        seconds = {"type": "integer", "minimum": 1}
        answer["headers"] = {"Retry-After": {"description": "Seconds to wait", "required": True, "schema": seconds}}
    return answer


def _example(problem: Problem) -> dict[str, Any]:
    example = {
        "type": problem.urn,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem is Problem.INVALID_INPUT:
        return example | {"detail": "limit: is not known here; remove it", "errors": [_FIELD_ERROR]}
    return example


_FIELD_ERROR = {"field": "limit", "message": "is not known here; remove it"}
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [problem.urn for problem in Problem]},
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
