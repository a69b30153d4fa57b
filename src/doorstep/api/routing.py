"""The route class of all FastAPI routes here: same parsing, same limits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from doorstep.api.bodies import StrictRequest


class StrictRoute(APIRoute):
    """Hands its route a StrictRequest, so that FastAPI reads and parses bodies our way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(_as_json(request.scope), request.receive))

        return strict


def _as_json(scope: Scope) -> Scope:
    """Every body here is JSON, whatever its header says: `curl -d` calls it a form, and FastAPI would believe it."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}
