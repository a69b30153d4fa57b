"""Who is asking. Keys are compared by their hash; the key itself is stored nowhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, cast

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api.problems import Problem, Refusal, respond
from doorstep.api.throttle import Throttle
from doorstep.model.org import ApiKey

Authenticate = Callable[[str], Awaitable[ApiKey | None]]
_KEY_CHARACTERS_MAX = 256


class Authentication:
    """Lets nobody into /v1 without a valid key: not even to learn which paths there are."""

    def __init__(self, app: ASGIApp, authenticate: Authenticate, throttle: Throttle) -> None:
        self._app = app
        self._authenticate = authenticate
        self._throttle = throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            key = await self._identify(Headers(scope=scope))
            if key is None:
                await respond(_unauthenticated())(scope, receive, send)
                return
            self._throttle.check(key.key_id)
            scope["api_key"] = key
        await self._app(scope, receive, send)

    async def _identify(self, headers: Headers) -> ApiKey | None:
        given = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        return await self._authenticate(given) if 0 < len(given) <= _KEY_CHARACTERS_MAX else None


def api_key(request: Request) -> ApiKey:
    """The key that this request came with; for routes under /v1."""
    return cast(ApiKey, request.scope["api_key"])


Caller = Annotated[ApiKey, Depends(api_key)]
"""The same as a parameter of a FastAPI route. What the key may do has been checked by then (routing.py)."""


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthenticated() -> Refusal:
    return Refusal(Problem.UNAUTHENTICATED, headers={"WWW-Authenticate": "Bearer"})
