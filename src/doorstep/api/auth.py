"""Who is asking. Keys are compared by their hash; the key itself is stored nowhere."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Annotated, cast

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api.problems import Problem, Refusal, respond
from doorstep.api.throttle import Throttle
from doorstep.model.org import ApiKey

Authenticate = Callable[[str], Awaitable[ApiKey | None]]
OVER_RATE = "this key may make {} requests a second; slow down"
TOO_MANY_FAILURES = "more than {} requests a second with no valid key came from this address; check the key"
_POSSIBLE_KEY = re.compile(r"[!-~]{8,256}")
"""What can be a key at all (config.py has the same rule for those that people choose); nothing else is looked up."""
_IPV6_NETWORK = 64
"""Whoever has one IPv6 address has so many more that only their network tells one client from another."""


class Authentication:
    """Lets nobody into /v1 without a valid key: not even to learn which paths there are.

    `failures` counts wrong keys by the address that they come from. Valid keys are let in from every address, however
    many wrong ones come from there: many clients can be behind one proxy.
    """

    def __init__(self, app: ASGIApp, authenticate: Authenticate, requests: Throttle, failures: Throttle) -> None:
        self._app = app
        self._authenticate = authenticate
        self._requests = requests
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            key = await self._identify(Headers(scope=scope))
            if key is None:
                self._failures.check(client_of(scope))
                await respond(_unauthenticated())(scope, receive, send)
                return
            self._requests.check(key.key_id)
            scope["api_key"] = key
        await self._app(scope, receive, send)

    async def _identify(self, headers: Headers) -> ApiKey | None:
        given = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        return await self._authenticate(given) if _POSSIBLE_KEY.fullmatch(given) else None


def api_key(request: Request) -> ApiKey:
    """The key that this request came with; for routes under /v1."""
    return cast(ApiKey, request.scope["api_key"])


Caller = Annotated[ApiKey, Depends(api_key)]
"""The same as a parameter of a FastAPI route. What the key may do has been checked by then (routing.py)."""


def client_of(scope: Scope) -> str:
    """The network address that a request came from; of IPv6 the client's network. Empty for a socket without one."""
    host, _ = scope.get("client") or ("", 0)
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return str(host)
    if isinstance(address, IPv4Address) or address.ipv4_mapped is not None:
        return str(host)
    return str(IPv6Network((address, _IPV6_NETWORK), strict=False))


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthenticated() -> Refusal:
    return Refusal(Problem.UNAUTHENTICATED, headers={"WWW-Authenticate": "Bearer"})
