"""What surrounds every request: a correlation id that is echoed, and an answer even when we made a mistake."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from uuid import UUID

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doorstep.api.problems import Refusal, invalid, refusal_for, respond
from doorstep.api.wording import FieldError
from doorstep.telemetry.tracing import incoming

HEADER = "x-correlation-id"
_ACCEPTABLE = re.compile(r"[!-~]{1,128}")
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Answers hold keys, secrets and other people's payloads: nobody keeps them, nobody takes them for a page. Unless the
answer says otherwise, as style and scripts do."""
_log = logging.getLogger("doorstep.api")


class Frame:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], UUID]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER)
        acceptable = given is not None and _ACCEPTABLE.fullmatch(given)
        scope["correlation_id"] = given if acceptable else str(self._new_id())
        answer = _Answer(send, scope["correlation_id"])
        began = time.perf_counter()
        if given is not None and not acceptable:
            await respond(_bad_header())(scope, receive, answer)
        else:
            await self._guarded(scope, receive, answer)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("a request was answered", extra=_told(scope, answer, time.perf_counter() - began))

    async def _guarded(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  whatever a route did not foresee
            refusal = refusal_for(error)
            if refusal.status_code == 500:
                _log.error("a request failed", extra={"correlation_id": scope["correlation_id"]}, exc_info=error)
            if not answer.started:
                await respond(refusal)(scope, receive, answer)


def correlation_id(request: Request) -> str:
    """The id that follows an event from this request through every retry."""
    return str(request.scope["correlation_id"])


def trace_of(request: Request) -> str | None:
    """The trace that this request is part of. What is malformed is ignored, as the W3C wants it."""
    given = request.headers.get("traceparent")
    return None if given is None else incoming(given, request.headers.get("tracestate"))


class _Answer:
    """Sends, adds the correlation id, and remembers whether the answer has begun."""

    def __init__(self, send: Send, correlation_id: str) -> None:
        self._send = send
        self._correlation_id = correlation_id
        self.started = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            own = (HEADER.encode(), self._correlation_id.encode())
            given = list(message.get("headers", ()))
            said = {name for name, _ in given}
            message["headers"] = [*given, own, *(one for one in _ALWAYS if one[0] not in said)]
        await self._send(message)


def _told(scope: Scope, answer: _Answer, seconds: float) -> dict[str, object]:
    """What the log says of a request, at the level debug: its route, never its path and query, which may hold anything."""
    fields = {
        "method": scope["method"],
        "route": getattr(scope.get("route"), "path", None),
        "status": answer.status,
        "milliseconds": round(seconds * 1_000, 3),
    }
    return {"correlation_id": scope["correlation_id"], "fields": fields}


def _bad_header() -> Refusal:
    return invalid(FieldError("X-Correlation-Id", "must be 1 to 128 visible ASCII characters"))
