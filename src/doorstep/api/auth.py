"""Who is asking, and how often. Keys are compared by their hash; the key itself is stored nowhere."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Hashable
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import cast

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from doorstep.api.problems import Problem, Refusal, respond
from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import Overloaded
from doorstep.model.org import ApiKey

Authenticate = Callable[[str], Awaitable[ApiKey | None]]
OVER_RATE = "this key may make {} requests a second; slow down"
TOO_MANY_FAILURES = "more than {} requests a second with no valid key came from this address; check the key"
_POSSIBLE_KEY = re.compile(r"[!-~]{8,256}")
"""What can be a key at all (config.py has the same rule for those that people choose); nothing else is looked up."""
_IPV6_NETWORK = 64
"""Whoever has one IPv6 address has so many more that only their network tells one client from another."""
_BURST_SECONDS = 2.0
"""Who was quiet may catch up on this much at once."""
_BUCKETS_MAX = 10_000


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


class Throttle:
    """How much of something anybody may do a second: a bucket of tokens for each, in this process only.

    Several processes each count for themselves, so that together they let through as many times more.
    """

    def __init__(self, per_second: float, clock: Clock, refusal: str) -> None:
        """`refusal` is the sentence for who is over the rate, which is written in the place of its {}."""
        self._per_second = per_second
        self._full = max(1.0, per_second * _BURST_SECONDS)
        self._clock = clock
        self._refusal = refusal.format(f"{per_second:g}")
        self._buckets: dict[Hashable, tuple[float, Instant]] = {}

    def check(self, who: Hashable) -> None:
        """Take one token; Overloaded, with the time until there is one, where the bucket is empty."""
        if not self._per_second:
            return
        now = self._clock.now()
        tokens, at = self._buckets.get(who) or self._new_bucket(now)
        tokens = min(self._full, tokens + max(0, now - at) / SECOND * self._per_second)
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._per_second)
            raise Overloaded(self._refusal, max(1, wait))
        self._buckets[who] = (tokens - 1, now)

    def _new_bucket(self, now: Instant) -> tuple[float, Instant]:
        if len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.clear()
        return self._full, now
