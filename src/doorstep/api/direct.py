"""Routes that are served without the framework: plain ASGI functions, called before it and its middleware.

A route of the framework costs several times as much as the work that a sending route does, so the sending routes are
served here. They give the same answers: everything that a client can notice (correlation ids, keys, limits, problems,
headers, the debug log) comes from the functions that the middleware uses. tests/acceptance/test_r8_direct.py sends the
same requests to a direct route and to an ordinary one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from doorstep.api.access import Access, check
from doorstep.api.codec import check_parameters, encoded, receive_body
from doorstep.api.middleware import (
    HEADER,
    ROUTE,
    STATUS,
    Authentication,
    correlate,
    logged_refusal,
    report,
    route_of,
    with_own_headers,
    wrong_host,
)
from doorstep.api.problems import respond
from doorstep.app import Doorstep
from doorstep.components import Components
from doorstep.config import Settings
from doorstep.model.org import ApiKey
from doorstep.telemetry.timings import Timings

_NO_PARAMETERS: frozenset[str] = frozenset()


class DirectRequest:
    """A request with a valid key, after the key's permission has been checked."""

    __slots__ = ("_headers", "_receive", "components", "correlation_id", "key", "settings")

    def __init__(
        self, doorstep: Doorstep, key: ApiKey, correlation_id: str, headers: Mapping[bytes, bytes], receive: Receive
    ) -> None:
        self.settings: Settings = doorstep.settings
        self.components: Components = doorstep.components
        self.key = key
        self.correlation_id = correlation_id
        """The events that the request sends keep it through every retry."""
        self._headers = headers
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        """The first header with this name, which is in lower case."""
        return _text(self._headers.get(name))

    async def body(self, bytes_max: int) -> bytes:
        return await receive_body(self._receive, self.header(b"content-length") or "", bytes_max)


class Answer(NamedTuple):
    status: int
    content: object


DirectFunction = Callable[[DirectRequest], Awaitable[Answer]]


class DirectRoute:
    """An ASGI application that serves one route."""

    def __init__(
        self,
        method: str,
        path: str,
        access: Access,
        function: DirectFunction,
        doorstep: Doorstep,
        authentication: Authentication,
        new_id: Callable[[], UUID],
        timings: Timings,
    ) -> None:
        self._method = method
        self._path = path
        self._access = access
        self._function = function
        self._doorstep = doorstep
        self._authentication = authentication
        self._timings = timings
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = dict(reversed(scope["headers"]))  # of repeated headers the first, as in the framework
        correlation_id, refusal = correlate(_text(headers.get(HEADER.encode())), self._new_id)
        refusal = refusal or wrong_host(scope)
        if refusal is None:
            try:
                status, content = await self._answer(scope, headers, correlation_id, receive)
                body = encoded(content)
                given = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
            except Exception as error:  # noqa: BLE001  anything that the route did not handle
                refusal = logged_refusal(error, correlation_id)
        if refusal is not None:
            response = respond(refusal)
            status, body, given = response.status_code, bytes(response.body), response.raw_headers
        scope[STATUS] = status
        headers_sent = with_own_headers(given, correlation_id)
        await send({"type": "http.response.start", "status": status, "headers": headers_sent})
        await send({"type": "http.response.body", "body": body})
        report(self._timings, correlation_id, self._method, route_of(scope), status, began)

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], correlation_id: str, receive: Receive
    ) -> Answer:
        key = await self._authentication.require_key(scope)
        scope[ROUTE] = self._path
        check(key, self._access)
        if query := scope["query_string"]:
            check_parameters(QueryParams(query), _NO_PARAMETERS)
        return await self._function(DirectRequest(self._doorstep, key, correlation_id, headers, receive))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
