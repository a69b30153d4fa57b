"""`doorstep listen`: prints requests, checks their signatures, and simulates failures and delays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from doorstep.cli.listening import address, listener
from doorstep.cli.output import Output, say, visible
from doorstep.cli.serve import WebServer
from doorstep.clock import SECOND, AnchoredClock, Clock, Instant, to_iso
from doorstep.errors import ConfigError, InvalidInput
from doorstep.loop_binding import run_until_stopped
from doorstep.policy.retry import Random
from doorstep.receiver import Unverified, Webhook

_BODY_CHARACTERS_SHOWN = 2_000
_GRACE_SECONDS = 1.0
_VERDICTS = {True: ("signature ok", "green"), False: ("wrong signature", "bold red"), None: ("not checked", "dim")}


def listen(
    output: Output,
    host: str,
    port: int,
    secrets: Sequence[str],
    behaviour: Behaviour,
    *,
    show_headers: bool,
    requests_max: int | None,
) -> int:
    """Receive requests until a signal arrives or `requests_max` requests have been received."""
    webhook = _webhook(secrets)

    async def command(stop: asyncio.Event) -> None:
        printer = _Printer(output, show_headers, requests_max, stop)
        receiver = Receiver(lambda _: behaviour, AnchoredClock(), random.random, printer, webhook)
        with listener(host, port) as listening:
            url = f"{address(listening)}/"
            server = WebServer(receiver, grace_seconds=_GRACE_SECONDS, ready=lambda: _announce(url, bool(secrets)))
            await server.serve_until(stop, listening)
        if printer.reader_gone:  # raised after the server has stopped, because it would catch the error in a request
            raise BrokenPipeError

    run_until_stopped(command)
    return 0


class _Printer:
    """Prints each request. Sets `stop` after `requests_max` requests, or when the reader of the output has exited."""

    def __init__(self, output: Output, show_headers: bool, requests_max: int | None, stop: asyncio.Event) -> None:
        self._output = output
        self._show_headers = show_headers
        self._requests_max = requests_max
        self._stop = stop
        self._seen = 0
        self.reader_gone = False

    def __call__(self, arrival: Arrival) -> None:
        self._seen += 1
        try:
            self._output.line(as_value(arrival), as_text(arrival, show_headers=self._show_headers))
        except BrokenPipeError:
            self.reader_gone = True
        if self.reader_gone or self._seen == self._requests_max:
            self._stop.set()


def as_value(arrival: Arrival) -> dict[str, object]:
    """A request as a JSON object. Bytes that are not UTF-8 are escaped."""
    body = arrival.body.decode("utf-8", "backslashreplace")
    return arrival._asdict() | {"received_at": to_iso(arrival.received_at), "body": body}


def as_text(arrival: Arrival, *, show_headers: bool) -> Text:
    """A request as text: one line about it, then its body."""
    verdict, style = _VERDICTS[arrival.verified]
    text = Text()
    text.append(to_iso(arrival.received_at)[11:23], style="dim")
    text.append(f"  {visible(arrival.method)} {visible(arrival.path)}  ")
    text.append(visible(arrival.headers.get("webhook-id", "no webhook-id")), style="bold")
    text.append(f"  {verdict}{f' ({visible(arrival.flaw)})' if arrival.flaw else ''}", style=style)
    text.append(f"  → {arrival.answered}", style="green" if arrival.answered < 300 else "red")
    if show_headers:
        for name, value in arrival.headers.items():
            text.append(f"\n    {visible(name)}: {visible(value)}", style="dim")
    text.append("\n    " + _shown_body(arrival.body))
    return text


def _shown_body(body: bytes) -> str:
    shown = visible(body.decode("utf-8", "backslashreplace")[:_BODY_CHARACTERS_SHOWN])
    rest = f"… ({len(body)} bytes in all)" if len(body) > _BODY_CHARACTERS_SHOWN else ""
    return shown + rest or "(no body)"


def _announce(url: str, verifies: bool) -> None:
    say(f"Listening at {url} ; Ctrl-C stops it")
    if not verifies:
        say("Signatures are not verified; give the endpoint's secret with --secret to verify them")


def _webhook(secrets: Sequence[str]) -> Webhook | None:
    """The verifier for these secrets. An invalid secret is rejected at startup, not on the first request."""
    try:
        return Webhook(*secrets) if secrets else None
    except InvalidInput as error:
        raise ConfigError(f"--secret {error.message}; it is shown when an endpoint is created") from None


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BODY_BYTES_MAX = 32 * 1024 * 1024
_OK, _UNAUTHORIZED, _TOO_LARGE = 200, 401, 413


class Behaviour(NamedTuple):
    """How a receiver responds."""

    status: int = 503
    """The HTTP status of the response to a request that fails."""
    fail_share: float = 0.0
    """The share of requests that fail, from 0 to 1."""
    slow_seconds: float = 0.0
    """The delay before every response."""
    body: bytes = b""
    """The JSON body of the response to a request that fails."""


class Arrival(NamedTuple):
    """One request, and its response. The JSON output has the same fields."""

    received_at: Instant
    method: str
    path: str
    verified: bool | None
    """Whether the signature is valid; None if no secret was given to verify it."""
    flaw: str | None
    """Why the signature is invalid, in a sentence."""
    answered: int
    """The status of the response."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Receiver(NamedTuple):
    """An ASGI application. With a `webhook`, it responds with 401 to requests without a valid signature."""

    behaviour_of: Callable[[str], Behaviour]
    """The behaviour for a path."""
    clock: Clock
    random: Random
    arrived: Callable[[Arrival], None] = lambda _: None
    webhook: Webhook | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _read(receive)
        now, behaviour = self.clock.now(), self.behaviour_of(scope["path"])
        flaw = self._flaw(headers, body, now)
        status = _TOO_LARGE if body is None else _UNAUTHORIZED if flaw else self._status(behaviour)
        verified = None if self.webhook is None else flaw is None
        self.arrived(Arrival(now, scope["method"], scope["path"], verified, flaw, status, headers, body or b""))
        await asyncio.sleep(behaviour.slow_seconds)
        await _answer(send, status, behaviour.body if status == behaviour.status else b"")

    def _flaw(self, headers: Mapping[str, str], body: bytes | None, now: Instant) -> str | None:
        try:
            if self.webhook is not None:
                self.webhook.verify(headers, body or b"", now=now / SECOND)
        except Unverified as error:
            return str(error)
        return None

    def _status(self, behaviour: Behaviour) -> int:
        return behaviour.status if self.random() < behaviour.fail_share else _OK


async def _read(receive: Receive) -> bytes | None:
    """The request body; None if it is larger than any body that Doorstep sends."""
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
