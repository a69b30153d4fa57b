"""The middleware around every request: correlation ids, authentication, throttling, and a 405 for wrong methods."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import cast
from uuid import UUID

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doorstep.api.access import PathMethods
from doorstep.api.problems import Problem, Refusal, invalid, refusal_for, respond
from doorstep.clock import SECOND, Clock, Instant
from doorstep.errors import Overloaded
from doorstep.model.org import ApiKey
from doorstep.schemas.shape import FieldProblem
from doorstep.telemetry.timings import Timings

HEADER = "x-correlation-id"
_RAW_HEADER = HEADER.encode()
_ACCEPTABLE = re.compile(r"[!-~]{1,128}")
_DEFAULT_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Responses contain keys, secrets and payloads, so caches must not store them and browsers must not guess their type.
Responses that set these headers themselves, such as styles and scripts, keep their own values."""
_log = logging.getLogger("doorstep.api")


class Frame:
    """The outermost layer: adds the correlation id, writes the debug log, and responds even to unexpected errors."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], UUID], timings: Timings) -> None:
        self._app = app
        self._new_id = new_id
        self._timings = timings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["correlation_id"], refusal = correlate(Headers(scope=scope).get(HEADER), self._new_id)
        refusal = refusal or wrong_host(scope)
        answer = _Answer(send, scope["correlation_id"])
        began = time.perf_counter()
        if refusal is not None:
            await respond(refusal)(scope, receive, answer)
        else:
            await self._guarded(scope, receive, answer)
        report(self._timings, scope["correlation_id"], scope["method"], route_of(scope), answer.status, began)

    async def _guarded(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  anything that a route did not handle
            refusal = logged_refusal(error, scope["correlation_id"])
            if not answer.started:
                await respond(refusal)(scope, receive, answer)


def correlate(given: str | None, new_id: Callable[[], UUID]) -> tuple[str, Refusal | None]:
    """The correlation id of a request: the given one, or a new one. If the given one is not acceptable, also the
    refusal to respond with."""
    if given is None:
        return str(new_id()), None
    if _ACCEPTABLE.fullmatch(given):
        return given, None
    error = FieldProblem("X-Correlation-Id", "must be 1 to 128 visible ASCII characters")
    return str(new_id()), invalid(error)


_ONE_HOST = "a request must have exactly one header Host"


def wrong_host(scope: Scope) -> Refusal | None:
    """The refusal of a request that does not have exactly one header `Host` (RFC 9112, 3.2): a proxy may choose another
    of several than this server. HTTP/1.0 has no such header."""
    hosts = 0
    for name, _ in scope["headers"]:
        if name == b"host":
            hosts += 1
    if hosts == 1 or (not hosts and scope.get("http_version") == "1.0"):
        return None
    return Refusal(Problem.BAD_REQUEST, _ONE_HOST)


def logged_refusal(error: Exception, correlation_id: str) -> Refusal:
    """The refusal for an exception, which is logged if it is a bug."""
    refusal = refusal_for(error)
    if refusal.status_code == 500:
        _log.error("a request failed", extra={"correlation_id": correlation_id}, exc_info=error)
    return refusal


def report(timings: Timings, correlation_id: str, method: str, route: str, status: int, began: float) -> None:
    """Count a request and write it to the debug log: with its route, but never its path and query, which may contain
    secrets. `began` is a time of `time.perf_counter`."""
    seconds = time.perf_counter() - began
    timings.request(method, route, status, seconds)
    if _log.isEnabledFor(logging.DEBUG):
        fields = {"method": method, "route": route, "status": status, "milliseconds": round(seconds * 1_000, 3)}
        _log.debug("a request was answered", extra={"correlation_id": correlation_id, "fields": fields})


def correlation_id(request: Request) -> str:
    """The correlation id of the request. The events that the request sends keep it through every retry."""
    return str(request.scope["correlation_id"])


class _Answer:
    """Sends the response with the correlation id, and remembers whether the response has started."""

    def __init__(self, send: Send, correlation_id: str) -> None:
        self._send = send
        self._correlation_id = correlation_id
        self.started = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message["headers"] = with_own_headers(message.get("headers", ()), self._correlation_id)
        await self._send(message)


ROUTE = "doorstep.route"
"""The key under which our own routes leave their path in the scope."""


def route_of(scope: Scope) -> str:
    """The path of the route that handled a request, with its parameters in braces; empty if no route was reached. The
    routes of a program are FastAPI's, which leave themselves in the scope."""
    return str(scope.get(ROUTE) or getattr(scope.get("route"), "path", ""))


def with_own_headers(given: Iterable[tuple[bytes, bytes]], correlation_id: str) -> list[tuple[bytes, bytes]]:
    """The headers of a response, with those that every response has."""
    headers = [*given, (_RAW_HEADER, correlation_id.encode())]
    names = {name for name, _ in headers}
    return headers + [one for one in _DEFAULT_HEADERS if one[0] not in names]


STATUS = "doorstep.status"
"""The key under which a direct route leaves the status of its response in the scope."""
IDENTIFIED = "doorstep.identified"
"""The key under which the scope contains a function to call if the request has a valid key or session. The server closes
connections without one first."""
Authenticate = Callable[[str], Awaitable[ApiKey | None]]
OVER_RATE = "this key may send {} requests per second; slow down"
TOO_MANY_FAILURES = "more than {} requests per second without a valid key came from this address; check the key"
_POSSIBLE_KEY = re.compile(r"[!-~]{8,256}")
"""The syntax of a key, the same as for configured keys in config.py. Other texts are not looked up."""
_IPV6_NETWORK = 64
"""The length of the prefix that identifies an IPv6 client. One client has its whole network of addresses to choose
from."""
_BURST_SECONDS = 2.0
"""The size of a burst: after a pause, a client may send as many requests at once as the rate allows in this time."""
_BUCKETS_MAX = 10_000
_KEY = "api_key"
"""The key under which the scope of a request contains the API key."""


class Authentication:
    """Finds the API key of a request.

    `failures` limits the rate of requests without a valid key, per client address. It does not affect requests with a
    valid key from the same address, which may come from other clients behind the same proxy.
    """

    def __init__(self, authenticate: Authenticate, requests: Throttle, failures: Throttle) -> None:
        self._authenticate = authenticate
        self._requests = requests
        self._failures = failures

    async def require_key(self, scope: Scope) -> ApiKey:
        """The valid key of a request; raises an UNAUTHENTICATED refusal if it has none. Counts the request once."""
        if _KEY not in scope:
            key = await self._identify(Headers(scope=scope))
            if key is None:
                self._failures.check(client_of(scope))
                raise Refusal(Problem.UNAUTHENTICATED, headers={"WWW-Authenticate": "Bearer"})
            self._requests.check(key.key_id)
            scope[_KEY] = key
            if (identified := scope.get(IDENTIFIED)) is not None:
                identified()
        return cast(ApiKey, scope[_KEY])

    async def _identify(self, headers: Headers) -> ApiKey | None:
        given = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        return await self._authenticate(given) if _POSSIBLE_KEY.fullmatch(given) else None


class KeyRequired:
    """Rejects every request to /v1 that has no valid key, so that strangers do not even learn which paths exist."""

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            try:
                await self._authentication.require_key(scope)
            except Refusal as refusal:
                await respond(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def api_key(request: Request) -> ApiKey:
    """The key of this request. Only for routes under /v1."""
    return cast(ApiKey, request.scope[_KEY])


def client_of(scope: Scope) -> str:
    """The client's address; for IPv6, its network. Empty if the socket has no address."""
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


class Throttle:
    """A rate limit: a token bucket for each client, in this process only.

    Each process counts separately, so several processes together allow a multiple of the rate.
    """

    def __init__(self, per_second: float, clock: Clock, refusal: str) -> None:
        """`refusal` is the error message; its {} is replaced by the rate."""
        self._per_second = per_second
        self._full = max(1.0, per_second * _BURST_SECONDS)
        self._clock = clock
        self._refusal = refusal.format(f"{per_second:g}")
        self._buckets: dict[Hashable, tuple[float, Instant]] = {}

    def check(self, who: Hashable) -> None:
        """Take one token. If the bucket is empty, raise Overloaded with the time until the next token."""
        if not self._per_second:
            return
        now = self._clock.now()
        tokens, at = self._buckets.get(who, (self._full, now))
        if at > now:  # the clock was set back
            self._buckets[who] = tokens, now
        tokens = min(self._full, tokens + max(0, now - at) / SECOND * self._per_second)
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._per_second)
            raise Overloaded(self._refusal, max(1, wait))
        if who not in self._buckets and len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.clear()
        self._buckets[who] = (tokens - 1, now)


class Methods:
    """Responds to unsupported methods with a 405 that lists the supported ones.

    It runs before the router. The router would list the methods of only one route, and would treat
    `DELETE /v1/dead-letters/bulk-retry` as the deletion of a dead letter with a malformed id.
    """

    def __init__(self, app: ASGIApp, methods: PathMethods) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self._methods.of(scope["path"]) if scope["type"] == "http" else ()
        if methods and scope["method"] not in methods:
            allowed = ", ".join(methods)
            refusal = Refusal(Problem.METHOD_NOT_ALLOWED, f"this path allows {allowed}", headers={"Allow": allowed})
            await respond(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)
