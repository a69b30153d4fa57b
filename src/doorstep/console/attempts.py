"""An attempt as it is shown: what went out, to whom, and as a command that sends it again.

Its row in the log has the headers alone. The body is that of the event, or of the operator who edited it, and the URL and
the envelope are those that the endpoint has now; where these may have been others then, the page says so.
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
from doorstep.model.delivery import Delivery, HistoryLine
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event
from doorstep.stores.notes import EDITED

_MASKED = b": ***"
"""How the log ends a header of the endpoint's own."""
_SHAPING = frozenset({"url", "envelope"})
"""The fields of an endpoint that say where a request goes, and what its body is."""


class ShownAttempt(NamedTuple):
    """One line of the attempt log."""

    attempt: Attempt
    outcome: str
    tone: str
    parts: tuple[Bar, ...]
    url: str | None
    """Of the endpoint as it is now; None for a Python handler."""
    body: bytes | None
    """What was sent, in the envelope that the endpoint has now; None where it is no longer kept."""
    changed_at: Instant | None
    """When the endpoint first got another URL or envelope after it; None if no such change is known."""

    @property
    def unsent(self) -> str:
        """What is said where no request can be shown."""
        unknown = self.attempt.code in (Code.WORKER_LOST, Code.ENDPOINT_DELETED)
        return "Whether anything was sent is not known." if unknown else "Nothing was sent."

    @property
    def lasted(self) -> Instant:
        return self.attempt.finished_at - self.attempt.started_at

    @property
    def masked(self) -> bool:
        """Whether it had headers whose values the log does not have."""
        return any(line.endswith(_MASKED) for line in self.attempt.request_headers.splitlines())

    @property
    def needs_file(self) -> bool:
        """Whether the command reads the body from a file."""
        return self.body is not None and needs_file(self.body)

    @property
    def file_name(self) -> str:
        """Of that file, and of the download that makes it."""
        return f"{self.attempt.delivery_id}-{self.attempt.number}.json"

    def curl(self, bytes_max: int | None = None) -> str | None:
        """The request as a command; None where it is not known, or would be of more bytes than somebody wants to see.
        It is made when it is asked for: a page with hundreds of attempts is made again every other second."""
        headers = self.attempt.request_headers
        if self.url is None or self.body is None or not self.attempt.was_sent:
            return None
        if bytes_max is not None and len(headers) + len(self.body) > bytes_max:
            return None
        return curl_command(self.url, headers, self.body, self.file_name)


class Sending(NamedTuple):
    """What went out when: the event's payload, until an operator gave another one."""

    endpoint: Endpoint
    first: bytes | None
    present: bytes | None
    edited_at: tuple[Instant, ...]
    changed_at: tuple[Instant, ...]
    """When the endpoint was given another URL or envelope."""

    def tries(self, attempts: Sequence[Attempt]) -> list[ShownAttempt]:
        longest = max((one.finished_at - one.started_at for one in attempts), default=0)
        return [self._try(one, longest) for one in attempts]

    def _try(self, one: Attempt, longest: Instant) -> ShownAttempt:
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
    visit: PageRequest,
    delivery: Delivery,
    endpoint: Endpoint,
    event: Event | None,
    history: Sequence[HistoryLine],
    acts: Sequence[AuditEntry],
) -> Sending:
    """`acts` are those on the endpoint; without its event nothing is known of what was sent."""
    changed_at = tuple(sorted(act.at for act in acts if _reshapes(act)))
    if event is None:
        return Sending(endpoint, None, None, (), changed_at)
    own = (
        await visit.doorstep.components.store.payload(visit.org_id, delivery.delivery_id)
        if delivery.edited
        else event.payload
    )
    first, present = (_on_the_wire(endpoint, event, payload) for payload in (event.payload, own))
    edited_at = tuple(line.at for line in history if line.note.startswith(EDITED))
    return Sending(endpoint, first, present, edited_at, changed_at)


def _reshapes(act: AuditEntry) -> bool:
    """The line of a change names the fields that were given."""
    return act.action == "endpoint.change" and not _SHAPING.isdisjoint(act.reason.split(", "))


def _on_the_wire(endpoint: Endpoint, event: Event, payload: bytes) -> bytes:
    return enveloped(event.event_type, event.created_at, payload) if endpoint.envelope else payload


BODY_BYTES_MAX = 96 * 1024
"""A larger body is read from a file: Linux gives one argument of a command 128 KiB."""


def curl_command(url: str, header_lines: bytes, body: bytes, file_name: str) -> str:
    """`header_lines` as the attempt log has them, one a line; `file_name` is where a large body is expected."""
    words = ["curl --globoff --include --request POST", f"--url {quoted(url.encode())}"]
    words += [f"--header {quoted(line)}" for line in _headers(header_lines)]
    if needs_file(body):
        words += ["--header Expect:", f"--data-binary {quoted(b'@' + file_name.encode())}"]
    else:
        words.append(f"--data-raw {quoted(body)}")
    return " \\\n  ".join(words)


def needs_file(body: bytes) -> bool:
    """Whether the command reads the body from a file, which has to be there."""
    return len(body) > BODY_BYTES_MAX


def quoted(text: bytes) -> str:
    """One word of a shell, whatever is in it. Bytes that are no plain text are spelled out (`$'\\x1b'`, as bash, zsh and
    ksh have it), so that nothing invisible is pasted, and no terminal takes a byte for a key."""
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        return _spelled(text)
    return shlex.quote(plain) if plain.isprintable() else _spelled(text)


def _spelled(text: bytes) -> str:
    return "$'" + text.decode("latin-1").translate(_SPELLING) + "'"


_SPELLING = {byte: f"\\x{byte:02x}" for byte in range(256) if not 0x20 <= byte < 0x7F or chr(byte) in "'\\"}
"""Of the bytes that are not harmless."""


def _headers(lines: bytes) -> Iterator[bytes]:
    """As curl wants them: `Name;` sends an empty value, `Name:` would send none at all, and `@` names a file."""
    for line in lines.splitlines():
        name, colon, value = line.partition(b":")
        if colon and not line.startswith(b"@"):
            yield line if value.strip() else name + b";"
