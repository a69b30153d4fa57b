"""The OpenAPI document: shapes from msgspec, operations from the routes, permissions and errors from api/access.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any, get_args
from uuid import UUID

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from doorstep.api.access import Access
from doorstep.api.examples import add_examples
from doorstep.api.problems import MEDIA_TYPE, Problem
from doorstep.api.routing import Operation
from doorstep.model.org import Role, roles_with
from doorstep.schemas.wording import UNKNOWN

Json = dict[str, Any]

_ORDER = ("GET", "POST", "PUT", "PATCH", "DELETE")
REFERENCE = "#/components/schemas/{name}"
ABOUT = """Reliable delivery: events are accepted once, delivered to every matching endpoint, retried with backoff, and
kept as dead letters if they fail permanently.

Send your key in the header `X-API-Key` (or `Authorization: Bearer`). Times are ISO 8601 in UTC. Errors are
`application/problem+json`. Lists are paginated: pass `pagination.cursor` as `cursor` while `has_more` is true.
Items of another organization return the same 404 as items that do not exist. Every route returns a 431 if the headers
are too large, and a 408 if the request arrives too slowly."""


def document(application: FastAPI, routes: Iterable[Operation], program: Sequence[BaseRoute] = ()) -> Json:
    """The OpenAPI document, with the routes of the program. It is built once, then cached."""
    if application.openapi_schema is None:
        named: Json = {"title": application.title, "version": application.version}
        described = _complete(get_openapi(**named, description=ABOUT, routes=[]), routes)
        if program:
            _add_program(described, get_openapi(**named, routes=program))
        application.openapi_schema = described
    return application.openapi_schema


def _add_program(described: Json, own: Json) -> None:
    """Add the routes of the program. A route of the same path and method replaces Doorstep's."""
    for path, methods in own["paths"].items():
        described["paths"].setdefault(path, {}).update(methods)
    schemas = described["components"]["schemas"]
    described["components"]["schemas"] = own.get("components", {}).get("schemas", {}) | schemas


def _complete(described: Json, routes: Iterable[Operation]) -> Json:
    schemas: Json = {}
    for route in sorted(routes, key=lambda route: _ORDER.index(route.method)):
        described["paths"].setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    components = described["components"] = {"schemas": dict(sorted((schemas | {"Problem": _PROBLEM}).items()))}
    components["securitySchemes"] = {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    access = {route.line: route.access for route in routes}
    for line, operation in operations(described):
        _secure(operation, access[line])
        _add_errors(operation, _problems(line, operation, access[line]))
    described["paths"] = dict(sorted(described["paths"].items()))
    add_examples(described)
    return described


def operations(described: Json) -> Iterator[tuple[str, Json]]:
    """Each operation with its method and path: `GET /v1/events`."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


# -- operations --------------------------------------------------------------------------------------------------


def inline(query: type[msgspec.Struct] | None = None, body: type[msgspec.Struct] | None = None) -> Json:
    """The `openapi_extra` of a FastAPI route in another application, with the schemas of its query and body."""
    described: Json = {} if query is None else {"parameters": _in_query(query)}
    if body is not None:
        schema = _tidy(msgspec.json.schema(body)["$defs"][body.__name__])
        described["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
    return described


def _operation(route: Operation, schemas: Json) -> Json:
    described: Json = {
        "tags": list(route.tags),
        "operationId": route.name,
        "summary": route.name.replace("_", " ").capitalize(),
        "description": route.about,
    }
    parameters = [*_in_path(route), *_in_query(route.query), *route.headers]
    if parameters:
        described["parameters"] = parameters
    if route.body is not None:
        described["requestBody"] = {"required": route.body_required, "content": _content(route.body, schemas)}
    answers = {route.status: route.answer, **route.more}
    described["responses"] = {str(status): _response(kind, schemas) for status, kind in sorted(answers.items())}
    return described


def _response(kind: Any, schemas: Json) -> Json:
    """Describe a response. `kind` is a shape, a tuple of a shape and its meaning, None for no content, or a complete
    description."""
    if isinstance(kind, dict):
        return kind
    shape, meaning = kind if isinstance(kind, tuple) else (kind, "Success")
    return {"description": meaning} | ({} if shape is None else {"content": _content(shape, schemas)})


def _content(kind: Any, schemas: Json) -> Json:
    return {"application/json": {"schema": _schema(kind, schemas)}}


def _schema(kind: Any, schemas: Json) -> Json:
    """The schema of a type. Unions are handled here, because msgspec supports only tagged unions of objects."""
    if isinstance(kind, UnionType):
        return {"anyOf": [_schema(one, schemas) for one in get_args(kind)]}
    (schema,), components = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    for name, shape in components.items():
        described = _tidy(shape)
        assert schemas.setdefault(name, described) == described, f"two shapes of the API are named {name}"
    tidied: Json = _tidy(schema)
    return tidied


def _tidy(schema: Any) -> Any:
    """Remove redundant entries: a null default, an empty list of required fields. Forbid additional fields in objects,
    so that tests detect undocumented fields (clients ignore unknown fields)."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: value if name in ("default", "enum", "const") else _tidy(value)
        for name, value in schema.items()
        if (name, value) not in (("default", None), ("required", []))
    }
    if "properties" in kept:
        kept.setdefault("additionalProperties", False)
    if "enum" in kept:
        kept.setdefault("type", "string")
    return kept


def _in_path(route: Operation) -> Iterator[Json]:
    for name, kind in route.ids.items():
        schema = {"type": "string", "format": "uuid"} if kind is UUID else {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: type[msgspec.Struct] | None) -> list[Json]:
    if query is None:
        return []
    properties = msgspec.json.schema(query)["$defs"][query.__name__]["properties"]
    required = msgspec.json.schema(query)["$defs"][query.__name__].get("required", ())
    return [_parameter(name, _tidy(_without_null(schema)), name in required) for name, schema in properties.items()]


def _parameter(name: str, schema: Json, required: bool) -> Json:
    described: Json = {"name": name, "in": "query", "required": required, "schema": schema}
    if schema.get("type") == "object":  # written as name[key]=value
        described |= {"style": "deepObject", "explode": True, "description": schema.pop("description", "")}
    return described


def _without_null(schema: Json) -> Json:
    """The schema without null, because a query parameter is omitted instead of being null."""
    forms: list[Json] = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    if len(forms) != 1:
        return schema
    return {name: value for name, value in schema.items() if name not in ("anyOf", "default")} | forms[0]


# -- permissions and errors ------------------------------------------------------------------------------


def _secure(operation: Json, access: Access | None) -> None:
    if access is None:
        return
    operation["security"] = [{"key": []}, {"bearer": []}]
    operation["x-permission"] = access.permission.value
    operation["x-roles"] = roles_with(access.permission)
    if access.default_org:
        operation["x-default-organization-only"] = True


def _problems(line: str, operation: Json, access: Access | None) -> Iterator[Problem]:
    """The errors that this route can respond with."""
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


def _add_errors(operation: Json, problems: Iterable[Problem]) -> None:
    responses = operation["responses"]
    for problem in sorted(problems, key=lambda problem: problem.status):
        status = str(problem.status)
        shared = responses[status]["description"] + "; or: " if status in responses else ""
        responses[status] = _error(problem) | {"description": shared + problem.title}


def _error(problem: Problem) -> Json:
    answer: Json = {
        "description": problem.title,
        "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name="Problem")}, "example": _example(problem)}},
    }
    if problem in (Problem.OVERLOADED, Problem.STORE_UNAVAILABLE):
        seconds = {"type": "integer", "minimum": 1}
        answer["headers"] = {"Retry-After": {"description": "Seconds to wait", "required": True, "schema": seconds}}
    return answer


def _example(problem: Problem) -> Json:
    if problem is Problem.INVALID_INPUT:
        error = {"field": "limit", "message": UNKNOWN}
        return problem.body(f"limit: {UNKNOWN}") | {"errors": [error]}
    return problem.body(problem.detail)


_PROBLEM: Json = {
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
