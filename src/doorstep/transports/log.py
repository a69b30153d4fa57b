"""Delivers events to the log of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doorstep.clock import Clock, Instant, to_iso
from doorstep.model.attempt import Reply
from doorstep.model.claim import Claim
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.redaction import scrubbed
from doorstep.transports.transport import Done, Transmission, Transport

_PAYLOAD_CHARACTERS_MAX = 2_000


class LogTransport(Transport):
    """Delivers to the log of this worker, for experiments: each attempt writes one log record and succeeds.

    All organizations share the log, and many tools read it. So a record contains only the start of the payload, and
    anything that looks like a credential is masked, as everywhere in the log.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._replies: list[tuple[Transmission, Reply]] = []

    def open(self, done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done

    def start(self, transmissions: Sequence[Transmission]) -> None:
        now = self._clock.now()
        self._telemetry.emit_all([_notice(one.claim, now) for one in transmissions])
        if not self._replies:  # report in the next iteration of the loop, after the engine has started all attempts
            self._loop.call_soon(self._report)
        self._replies += [
            (one, Reply(started_at=now, finished_at=now, request_headers=one.logged_headers)) for one in transmissions
        ]

    async def close(self) -> None:
        self._replies.clear()

    def _report(self) -> None:
        replies, self._replies = self._replies, []
        if replies:
            self._done(replies)


def _notice(claim: Claim, now: Instant) -> Notice:
    start = claim.payload[: 8 * _PAYLOAD_CHARACTERS_MAX]  # the rest of a long payload is not searched for credentials
    fields: dict[str, object] = {
        "event_id": claim.event_id,
        "event_type": claim.event_type,
        "delivery_id": claim.delivery_id,
        "endpoint_id": claim.endpoint_id,
        "attempt": claim.attempt,
        "correlation_id": claim.correlation_id,
        "org_id": claim.org_id,
        "payload_bytes": len(claim.payload),
        "payload": scrubbed(start.decode(errors="replace"))[:_PAYLOAD_CHARACTERS_MAX],
    }
    return Notice(at=to_iso(now), level="info", message="event delivered to the log", fields=fields)
