"""An attempt as the console shows it: the request, and a curl command that sends it again.

Of each request, the attempt log stores only the headers. The console rebuilds the body from the event's payload, or
from the payload that an operator edited. It uses the endpoint's current URL and envelope setting, and the page warns if
these may have changed since the attempt.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.console.request import PageRequest
from doorstep.console.timeline import Bar, outcome_of, parts, tone_of
from doorstep.engine.attempt import enveloped
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Attempt, Code
from doorstep.model.delivery import Delivery, HistoryEntry
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event

_MASKED = b": ***"
"""The end of a logged header whose value is masked."""
_SHAPING = frozenset({"destination", "url", "handler", "envelope"})
"""The endpoint settings that determine the URL and the body of a request."""


class ShownAttempt(NamedTuple):
    """One attempt from the attempt log, with the details that the page shows."""

    attempt: Attempt
    outcome: str
    tone: str
    parts: tuple[Bar, ...]
    url: str | None
    """The endpoint's current URL; None if its destination is not a URL."""
    body: bytes | None
    """The body that was sent, rebuilt with the endpoint's current envelope setting; None if it is no longer stored."""
    changed_at: Instant | None
    """When the endpoint's URL or envelope setting first changed after the attempt; None if no change is known."""

    @property
    def unsent(self) -> str:
        """The text that the page shows if there is no request to show."""
        unknown = self.attempt.code in (Code.WORKER_LOST, Code.ENDPOINT_DELETED)
        return "It is not known whether anything was sent." if unknown else "Nothing was sent."

    @property
    def lasted(self) -> Instant:
        return self.attempt.finished_at - self.attempt.started_at

    @property
    def masked(self) -> bool:
        """Whether the log masks the value of any header."""
        return any(line.endswith(_MASKED) for line in self.attempt.request_headers.splitlines())

    @property
    def needs_file(self) -> bool:
        """Whether the curl command reads the body from a file."""
        return self.body is not None and len(self.body) > BODY_BYTES_MAX

    @property
    def file_name(self) -> str:
        """The name of the file that the curl command reads; the page offers the body for download under this name."""
        return f"{self.attempt.delivery_id}-{self.attempt.number}.json"

    def curl(self, bytes_max: int | None = None) -> str | None:
        """The request as a curl command; None if the request is unknown or longer than `bytes_max`. The command is
        built on demand, because a page with hundreds of attempts is rendered again every two seconds."""
        headers = self.attempt.request_headers
        if self.url is None or self.body is None or not self.attempt.was_sent:
            return None
        if bytes_max is not None and len(headers) + len(self.body) > bytes_max:
            return None
        return curl_command(self.url, headers, self.body, self.file_name)


class Sending(NamedTuple):
    """The request body over time: first the event's payload, then, after an operator's edit, the edited payload."""

    endpoint: Endpoint
    first: bytes | None
    present: bytes | None
    edited_at: tuple[Instant, ...]
    changed_at: tuple[Instant, ...]
    """The times at which the endpoint's URL or envelope setting changed."""

    def shown(self, attempts: Sequence[Attempt]) -> list[ShownAttempt]:
        longest = max((one.finished_at - one.started_at for one in attempts), default=0)
        return [self._shown(one, longest) for one in attempts]

    def _shown(self, one: Attempt, longest: Instant) -> ShownAttempt:
        return ShownAttempt(
            attempt=one,
            outcome=outcome_of(one),
            tone=tone_of(one),
            parts=parts(one, longest),
            url=self.endpoint.url,
            body=self._body_at(one.started_at),
            changed_at=next((at for at in self.changed_at if at > one.started_at), None),
        )

    def _body_at(self, at: Instant) -> bytes | None:
        if not self.edited_at or at < self.edited_at[0]:
            return self.first
        return self.present if at >= self.edited_at[-1] else None


async def sending_of(
    request: PageRequest,
    delivery: Delivery,
    endpoint: Endpoint,
    event: Event | None,
    history: Sequence[HistoryEntry],
    endpoint_actions: Sequence[AuditEntry],
) -> Sending:
    """The bodies of a delivery's requests. They are unknown if the event was deleted."""
    changed_at = tuple(sorted(entry.at for entry in endpoint_actions if _reshapes(entry)))
    if event is None:
        return Sending(endpoint, None, None, (), changed_at)
    own = await request.reader.payload(request.org_id, delivery.delivery_id) if delivery.edited else event.payload
    first, present = (_body(endpoint, event, payload) for payload in (event.payload, own))
    edited_at = tuple(line.at for line in history if line.edits_payload)
    return Sending(endpoint, first, present, edited_at, changed_at)


def _reshapes(entry: AuditEntry) -> bool:
    """Whether a change of the endpoint affects the URL or the body. The entry's reason lists the changed fields."""
    return entry.action == "endpoint.change" and not _SHAPING.isdisjoint(entry.reason.split(", "))


def _body(endpoint: Endpoint, event: Event, payload: bytes) -> bytes:
    return enveloped(event.event_type, event.created_at, payload) if endpoint.envelope else payload


BODY_BYTES_MAX = 96 * 1024
"""The curl command reads a larger body from a file, because Linux limits a single argument to 128 KiB."""


def curl_command(url: str, header_lines: bytes, body: bytes, file_name: str) -> str:
    """A curl command. `header_lines` has one header per line, as in the attempt log. A large body is read from
    `file_name`."""
    words = ["curl --globoff --include --request POST", f"--url {quoted(url.encode())}"]
    words += [f"--header {quoted(line)}" for line in _headers(header_lines)]
    if len(body) > BODY_BYTES_MAX:
        words += ["--header Expect:", f"--data-binary {quoted(b'@' + file_name.encode())}"]
    else:
        words.append(f"--data-raw {quoted(body)}")
    return " \\\n  ".join(words)


def quoted(text: bytes) -> str:
    """The text as one shell word. Text that is not valid, printable UTF-8 is escaped (`$'\\x1b'`, for bash, zsh and
    ksh), so that pasting it inserts nothing invisible and sends no control characters to the terminal."""
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        return _escaped(text)
    return shlex.quote(plain) if plain.isprintable() else _escaped(text)


def _escaped(text: bytes) -> str:
    return "$'" + text.decode("latin-1").translate(_ESCAPES) + "'"


_ESCAPES = {byte: f"\\x{byte:02x}" for byte in range(256) if not 0x20 <= byte < 0x7F or chr(byte) in "'\\"}
"""The escape sequences of control characters, non-ASCII bytes, single quotes and backslashes."""


def _headers(lines: bytes) -> Iterator[bytes]:
    """The headers in curl's syntax. A header with an empty value is written as `Name;`, because for `Name:` curl sends
    no header. Lines that start with `@` are left out, because curl would read headers from a file of that name."""
    for line in lines.splitlines():
        name, colon, value = line.partition(b":")
        if colon and not line.startswith(b"@"):
            yield line if value.strip() else name + b";"
