"""`doorstep listen`: prints what arrives, checks its signature, and fails or dawdles on request."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from rich.text import Text

from doorstep.cli.output import Output, say, visible
from doorstep.cli.receiver import Arrival, Behaviour, Receiver
from doorstep.cli.web_server import WebServer, address, listener
from doorstep.clock import AnchoredClock, to_iso
from doorstep.errors import ConfigError, InvalidInput
from doorstep.receiver import Webhook
from doorstep.stopping import run_until_stopped

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
