"""The route class of all FastAPI routes here: same parsing, same limits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from doorstep.api.bodies import StrictRequest


class StrictRoute(APIRoute):
    """Hands its route a StrictRequest, so that FastAPI reads and parses bodies our way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
