"""`doorstep listen`: prints what arrives, checks its signature, and fails or dawdles on request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from rich.text import Text

from doorstep.cli.output import Output, say, visible
from doorstep.cli.serve import WebServer, address, listener
from doorstep.clock import SECOND, AnchoredClock, Clock, Instant, to_iso
from doorstep.errors import ConfigError, InvalidInput
from doorstep.policy.retry import Random
from doorstep.receiver import Unverified, Webhook
from doorstep.signals import run_until_stopped

_BODY_CHARACTERS_SHOWN = 2_000
_GRACE_SECONDS = 1.0
_MARKS = {True: ("signature ok", "green"), False: ("wrong signature", "bold red"), None: ("not checked", "dim")}


class Listening(NamedTuple):
    """What the command was told."""

    host: str
    port: int
    secrets: tuple[str, ...]
    behaviour: Behaviour
    show_headers: bool
    requests_max: int | None
    """End after so many arrivals."""


def listen(told: Listening, output: Output) -> int:
    """Receive until a signal comes, or until `requests_max` have arrived."""
    webhook = _webhook(told.secrets)

    async def command(stop: asyncio.Event) -> None:
        printer = _Printer(output, told, stop)
        receiver = Receiver(lambda _: told.behaviour, AnchoredClock(), random.random, printer, webhook)
        with listener(told.host, told.port) as listening:
            url = f"{address(listening)}/"
            server = WebServer(receiver, grace_seconds=_GRACE_SECONDS, ready=lambda: _announce(url, told))
            await server.serve_until(stop, listening)
        printer.check_reader()

    run_until_stopped(command)
    return 0


class _Printer:
    """Shows each arrival, and ends the listening with the last one, or when nobody reads any more."""

    def __init__(self, output: Output, told: Listening, stop: asyncio.Event) -> None:
        self._output = output
        self._told = told
        self._stop = stop
        self._seen = 0
        self._reader_left = False

    def __call__(self, arrival: Arrival) -> None:
        self._seen += 1
        try:
            self._output.line(as_value(arrival), as_words(arrival, show_headers=self._told.show_headers))
        except BrokenPipeError:
            self._reader_left = True
        if self._reader_left or self._seen == self._told.requests_max:
            self._stop.set()

    def check_reader(self) -> None:
        """Said only at the end: inside a request it would be the web server's trouble."""
        if self._reader_left:
            raise BrokenPipeError


def as_value(arrival: Arrival) -> dict[str, object]:
    """For programs. A body that is not text is given as its bytes, escaped."""
    return {
        "received_at": to_iso(arrival.at),
        "method": arrival.method,
        "path": arrival.path,
        "verified": arrival.verified,
        "flaw": arrival.flaw or None,
        "answered": arrival.status,
        "headers": dict(arrival.headers),
        "body": arrival.body.decode("utf-8", "backslashreplace"),
    }


def as_words(arrival: Arrival, *, show_headers: bool) -> Text:
    """For people: one line about the request, then its body."""
    words, style = _MARKS[arrival.verified]
    text = Text()
    text.append(to_iso(arrival.at)[11:23], style="dim")
    text.append(f"  {visible(arrival.method)} {visible(arrival.path)}  ")
    text.append(visible(arrival.headers.get("webhook-id", "no webhook-id")), style="bold")
    text.append(f"  {words}{f' ({visible(arrival.flaw)})' if arrival.flaw else ''}", style=style)
    text.append(f"  → {arrival.status}", style="green" if arrival.status < 300 else "red")
    if show_headers:
        for name, value in arrival.headers.items():
            text.append(f"\n    {visible(name)}: {visible(value)}", style="dim")
    text.append("\n    " + _shown_body(arrival.body))
    return text


def _shown_body(body: bytes) -> str:
    shown = visible(body.decode("utf-8", "backslashreplace")[:_BODY_CHARACTERS_SHOWN])
    rest = f"… ({len(body)} bytes in all)" if len(body) > _BODY_CHARACTERS_SHOWN else ""
    return shown + rest or "(no body)"


def _announce(url: str, told: Listening) -> None:
    say(f"Listening at {url} ; Ctrl-C ends it")
    if not told.secrets:
        say("Signatures are not checked; give the endpoint's secret with --secret to check them")


def _webhook(secrets: tuple[str, ...]) -> Webhook | None:
    """A secret that cannot be one is refused now rather than at the first arrival."""
    try:
        return Webhook(*secrets) if secrets else None
    except InvalidInput as error:
        raise ConfigError(f"--secret {error.message}; take it from the answer to the endpoint's creation") from None


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
