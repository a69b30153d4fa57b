"""The page at /docs: the OpenAPI document as plain HTML, with nothing loaded from other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.openapi import operations

Json = dict[str, Any]

STYLE_PATH = "/docs/style.css"
_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def add_docs(application: FastAPI) -> None:
    """Add the routes for the document, the page and its stylesheet. They are public, because their content is the same
    for every installation. Each is built once: encoding the document takes 10 ms of CPU."""
    css = Path(__file__).with_name("docs.css").read_text()
    text = cache(lambda: _page(application))
    encoded = cache(lambda: json.dumps(application.openapi(), ensure_ascii=False, separators=(",", ":")).encode())

    async def document(request: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    async def page(request: Request) -> Response:
        return Response(text(), headers=_SECURITY_HEADERS, media_type="text/html")

    async def style(request: Request) -> Response:
        return Response(css, headers=_SECURITY_HEADERS, media_type="text/css")

    application.add_route("/openapi.json", document, methods=["GET"], include_in_schema=False)
    application.add_route("/docs", page, methods=["GET"], include_in_schema=False)
    application.add_route(STYLE_PATH, style, methods=["GET"], include_in_schema=False)


def _page(application: FastAPI) -> str:
    described = application.openapi()
    groups = _by_tag(described)
    return "".join(
        (
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>Doorstep HTTP API</title><link rel="stylesheet" href="{STYLE_PATH}"></head><body>',
            f"<nav><p><a href='#top'>Doorstep {escape(described['info']['version'])}</a></p>",
            *(_menu(tag, lines) for tag, lines in groups.items()),
            "</nav><main id=top><h1>HTTP API</h1>",
            *(f"<p>{_text(part)}</p>" for part in described["info"]["description"].split("\n\n")),
            '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>',
            *(_group(tag, lines) for tag, lines in groups.items()),
            "</main></body></html>",
        )
    )


def _by_tag(described: Json) -> dict[str, dict[str, Json]]:
    groups: dict[str, dict[str, Json]] = {}
    for line, operation in operations(described):
        groups.setdefault(operation["tags"][-1], {})[line] = operation
    return groups


def _menu(tag: str, lines: dict[str, Json]) -> str:
    links = "".join(f'<li><a href="#{_anchor(line)}">{escape(line)}</a></li>' for line in lines)
    return f"<h2>{escape(tag)}</h2><ul>{links}</ul>"


def _group(tag: str, lines: dict[str, Json]) -> str:
    return f"<h2>{escape(tag)}</h2>" + "".join(_operation(line, operation) for line, operation in lines.items())


def _operation(line: str, operation: Json) -> str:
    method, path = line.split(" ")
    return "".join(
        (
            f'<section id="{_anchor(line)}"><h3><b class="{method.lower()}">{method}</b> <code>{escape(path)}</code></h3>',
            f"<p>{_text(operation.get('description') or operation['summary'] + '.')}</p>",
            *_roles(operation),
            *_parameters(operation),
            *_body("Request", operation.get("requestBody", {})),
            *(part for status, answer in operation["responses"].items() for part in _answer(status, answer)),
            "</section>",
        )
    )


def _roles(operation: Json) -> Iterator[str]:
    if "x-roles" in operation:
        where = " of the default organization" if "x-default-organization-only" in operation else ""
        yield f"<p class=roles>For {escape(', '.join(operation['x-roles']))}{where}</p>"


def _parameters(operation: Json) -> Iterator[str]:
    """The parameters of an operation, without those in the path, which are self-explanatory."""
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(_kind(one['schema']))}<td>"
        f"{_text(one.get('description') or one['schema'].get('description', ''))}"
        for one in operation.get("parameters", ())
        if one["in"] != "path"
    ]
    if rows:
        yield f"<table><tr><th>parameter<th>kind<th>{''.join(rows)}</table>"


def _kind(schema: Json) -> str:
    kinds = [_kind(one) for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return " or ".join(kinds) or schema.get("format") or schema.get("const") or schema.get("type", "any")


def _answer(status: str, answer: Json) -> Iterator[str]:
    """A response: successes with an example, errors on one line, because all errors have the same shape."""
    if status < "300":
        yield from _body(f"Response {status}", answer) if answer.get("content") else (f"<h4>Response {status}</h4>",)
    else:
        yield f"<p class=error><b>{escape(status)}</b> {escape(answer['description'])}</p>"


def _body(title: str, part: Json) -> Iterator[str]:
    for media in part.get("content", {}).values():
        example = media["example"]
        shown = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        yield f"<h4>{escape(title)}</h4><pre>{escape(shown)}</pre>"


def _text(text: str) -> str:
    """The text escaped for HTML, with backticks turned into code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if odd % 2 else part for odd, part in enumerate(parts))


def _anchor(line: str) -> str:
    return escape("".join(sign if sign.isalnum() else "-" for sign in line.lower()))
