"""What surrounds every request: a correlation id that is echoed, and an answer even when we made a mistake."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from uuid import UUID

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from doorstep.api.problems import Refusal, invalid, refusal_for, respond
from doorstep.api.wording import FieldError

HEADER = "x-correlation-id"
_ACCEPTABLE = re.compile(r"[!-~]{1,128}")
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Answers hold keys, secrets and other people's payloads: nobody keeps them, nobody takes them for a page."""
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
        if given is not None and not acceptable:
            await respond(_bad_header())(scope, receive, answer)
            return
        await self._guarded(scope, receive, answer)

    async def _guarded(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception as error:  # noqa: BLE001  whatever a route did not foresee
            refusal = refusal_for(error)
            if refusal.status_code == 500:
                _log.exception("a request failed", extra={"correlation_id": scope["correlation_id"]})
            if not answer.started:
                await respond(refusal)(scope, receive, answer)


def correlation_id(request: Request) -> str:
    """The id that follows an event from this request through every retry."""
    return str(request.scope["correlation_id"])


class _Answer:
    """Sends, adds the correlation id, and remembers whether the answer has begun."""

    def __init__(self, send: Send, correlation_id: str) -> None:
        self._send = send
        self._correlation_id = correlation_id
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            own = (HEADER.encode(), self._correlation_id.encode())
            message["headers"] = [*message.get("headers", ()), own, *_ALWAYS]
        await self._send(message)


def _bad_header() -> Refusal:
    return invalid(FieldError("X-Correlation-Id", "must be 1 to 128 visible ASCII characters"))
