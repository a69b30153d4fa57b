"""Generates minimal and maximal values that match a JSON schema."""

from __future__ import annotations

from typing import Any

_TEXTS = {"uuid": "01890a5d-ac96-774b-bcce-b302099a8057", "date-time": "2026-01-31T12:00:00.000000Z"}
_SIMPLE = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def barest(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """A value with only the required fields, null wherever null is allowed, and empty lists."""
    schema = _resolved(schema, document)
    if _nullable(schema):
        return None
    kind = _kind(schema)
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: barest(properties[name], document) for name in schema.get("required", [])}
    return [] if kind == "array" else _leaf(schema, kind, lambda form: barest(form, document))


def fullest(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """A value with every field, non-null values wherever possible, and one item in every list."""
    schema = _resolved(schema, document)
    kind = _kind(schema)
    if kind == "object":
        named = {name: fullest(part, document) for name, part in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        return named | ({"some": fullest(more, document)} if isinstance(more, dict) else {})
    if kind == "array":
        return [fullest(schema.get("items", {}), document)]
    return _leaf(schema, kind, lambda form: fullest(form, document))


def _leaf(schema: dict[str, Any], kind: str, inner: Any) -> Any:
    for choices in ("anyOf", "oneOf"):
        if choices in schema:
            return inner(next(form for form in schema[choices] if form.get("type") != "null"))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    return _TEXTS.get(schema.get("format", ""), "text") if kind == "string" else _SIMPLE.get(kind)


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return _resolved(found, document)
    return schema


def _nullable(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    return (isinstance(kinds, list) and "null" in kinds) or any(
        form.get("type") == "null" for form in schema.get("anyOf", []) + schema.get("oneOf", [])
    )


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "")
    return next(one for one in kind if one != "null") if isinstance(kind, list) else kind
