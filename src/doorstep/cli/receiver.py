"""A webhook receiver on this machine, which can be told to be slow or to fail: for `listen` and for the demo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from doorstep.clock import SECOND, Clock, Instant
from doorstep.policy.retry import Random
from doorstep.receiver import Unverified, Webhook

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BODY_BYTES_MAX = 32 * 1024 * 1024
_OK, _UNAUTHORIZED, _TOO_LARGE = 200, 401, 413


class Behaviour(NamedTuple):
    """How a receiver treats what arrives."""

    status: int = 503
    """The answer to those that are to fail."""
    fail_share: float = 0.0
    """How many are to fail: 0 none, 1 all."""
    slow_seconds: float = 0.0
    """How long every answer is kept back."""
    body: bytes = b""
    """What it says to those that are to fail, as JSON."""


class Arrival(NamedTuple):
    """One request, and how it was answered."""

    at: Instant
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    verified: bool | None
    """Whether its signature is right; None where there is no secret to check it with."""
    flaw: str
    """What is wrong with the signature, in a sentence."""
    status: int


class Receiver:
    """An ASGI application. With a `webhook` it answers 401 to what does not verify, as a careful receiver does."""

    def __init__(
        self,
        behaviour: Callable[[str], Behaviour],
        clock: Clock,
        random: Random,
        arrived: Callable[[Arrival], None] = lambda _: None,
        webhook: Webhook | None = None,
    ) -> None:
        self._behaviour = behaviour
        self._clock = clock
        self._random = random
        self._arrived = arrived
        self._webhook = webhook

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _read(receive)
        now, behaviour = self._clock.now(), self._behaviour(scope["path"])
        flaw = self._flaw(headers, body, now)
        status = _TOO_LARGE if body is None else _UNAUTHORIZED if flaw else self._status(behaviour)
        verified = None if self._webhook is None else not flaw
        self._arrived(Arrival(now, scope["method"], scope["path"], headers, body or b"", verified, flaw, status))
        await asyncio.sleep(behaviour.slow_seconds)
        await _answer(send, status, behaviour.body if status == behaviour.status else b"")

    def _flaw(self, headers: Mapping[str, str], body: bytes | None, now: Instant) -> str:
        if self._webhook is None:
            return ""
        try:
            self._webhook.verify(headers, body or b"", now=now / SECOND)
        except Unverified as error:
            return str(error)
        return ""

    def _status(self, behaviour: Behaviour) -> int:
        return behaviour.status if self._random() < behaviour.fail_share else _OK


async def _read(receive: Receive) -> bytes | None:
    """The body; None if it is larger than anything that Doorstep sends."""
    body = bytearray()
    while len(body) <= _BODY_BYTES_MAX:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
    return None


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body)), *([(b"content-type", b"application/json")] if body else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
