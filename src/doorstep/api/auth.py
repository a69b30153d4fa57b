"""Who is asking, and what they may do. Keys are compared by their hash; the key itself is stored nowhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Annotated, cast

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api.problems import Problem, Refusal, respond
from doorstep.model.org import ApiKey, Role


class Permission(Enum):
    SEND = auto()
    """Send events."""
    STATUS = auto()
    """Read the status of events."""
    LOOK = auto()
    """Read everything else: payloads, attempts, endpoints."""
    ACT = auto()
    """Change things."""


ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.ADMIN: frozenset(Permission),
    Role.OPERATOR: frozenset(Permission),
    Role.VIEWER: frozenset({Permission.STATUS, Permission.LOOK}),
    Role.PUBLISHER: frozenset({Permission.SEND, Permission.STATUS}),
}

Authenticate = Callable[[str], Awaitable[ApiKey | None]]
_KEY_CHARACTERS_MAX = 256


class Authentication:
    """Lets nobody into /v1 without a valid key: not even to learn which paths there are."""

    def __init__(self, app: ASGIApp, authenticate: Authenticate) -> None:
        self._app = app
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            key = await self._identify(Headers(scope=scope))
            if key is None:
                await respond(_unauthenticated())(scope, receive, send)
                return
            scope["api_key"] = key
        await self._app(scope, receive, send)

    async def _identify(self, headers: Headers) -> ApiKey | None:
        given = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        return await self._authenticate(given) if 0 < len(given) <= _KEY_CHARACTERS_MAX else None


def api_key(request: Request) -> ApiKey:
    """The key that this request came with; for routes under /v1."""
    return cast(ApiKey, request.scope["api_key"])


def check(request: Request, permission: Permission) -> ApiKey:
    """The key, if its role has the permission."""
    key = api_key(request)
    if permission not in ALLOWED[key.role]:
        raise Refusal(Problem.FORBIDDEN, f"the role {key.role} may not do that; use a key with another role")
    return key


def allow(permission: Permission) -> Callable[[Request], ApiKey]:
    """The same as a dependency of a FastAPI route."""

    def dependency(request: Request) -> ApiKey:
        return check(request, permission)

    return dependency


ReadingStatus = Annotated[ApiKey, Depends(allow(Permission.STATUS))]
Looking = Annotated[ApiKey, Depends(allow(Permission.LOOK))]
Acting = Annotated[ApiKey, Depends(allow(Permission.ACT))]


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthenticated() -> Refusal:
    return Refusal(Problem.UNAUTHENTICATED, headers={"WWW-Authenticate": "Bearer"})
