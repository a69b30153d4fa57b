"""Which methods a path under /v1 has: what has no such method is a 405 that lists those it has.

The router alone would name the methods of one route of several, and would take `DELETE /v1/dead-letters/bulk-retry`
for the deletion of a dead letter with a strange id.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api.access import ROUTES
from doorstep.api.problems import Problem, Refusal, respond

_ANY = "*"
_ID_PLACES = (3, 5)
"""In `/v1/events/{event_id}/status` and `/v1/pipelines/{pipeline}/entities/{entity_id}`, split at their slashes."""


class Methods:
    """Stands before the router."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = methods_of(scope["path"]) if scope["type"] == "http" else ()
        if allowed and scope["method"] not in allowed:
            await respond(_refusal(", ".join(allowed)))(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal(allowed: str) -> Refusal:
    return Refusal(Problem.METHOD_NOT_ALLOWED, f"this path takes {allowed}", headers={"Allow": allowed})


def methods_of(path: str) -> tuple[str, ...]:
    """Those in the table of routes; none for a path that is not in it."""
    if path in _METHODS:
        return _METHODS[path]
    parts = path.split("/")
    for place in _ID_PLACES:
        if not parts[place : place + 1] or not parts[place]:
            return ()
        parts[place] = _ANY
        if found := _METHODS.get("/".join(parts)):
            return found
    return ()


def _by_path() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for method, path in sorted(line.split(" ") for line in ROUTES):
        place = re.sub(r"\{\w+\}", _ANY, path)
        found[place] = (*found.get(place, ()), method)
    return found


_METHODS = _by_path()
