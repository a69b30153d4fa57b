"""Messages of the queue: the key and the version of a delivery, nothing else. Imports nothing of AWS.

A message says that a delivery may be due. It may be lost, repeated, early or late: the claim is decided by a conditional
write on the item, and the sweeper finds what no message announced. `version` is the delivery's version when the message
was sent. A delivery that has been written since has a newer version, and its message can be ignored: the sweeper finds the
delivery if the newer write announced none.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from doorstep.clock import SECOND, Instant
from doorstep.errors import InvalidInput
from doorstep.model.record import Record

DELAY_SECONDS_MAX = 900
"""The longest delay that SQS allows. A delivery that is due later gets its message from the sweeper."""
BATCH_MAX = 10
"""The number of messages that one request sends, receives or deletes at most."""


class DueMessage(Record, frozen=True):
    event_id: UUID
    delivery_id: UUID
    version: int


_decode = msgspec.json.Decoder(DueMessage).decode


def encode(message: DueMessage) -> str:
    """The body: `{"event_id":"…","delivery_id":"…","version":1}`."""
    return msgspec.json.encode(message).decode()


def decode(body: str | bytes) -> DueMessage:
    """Raises InvalidInput for a body that Doorstep did not write; such a message belongs in the queue's dead letters."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise InvalidInput("message", f"must be the key and version of a delivery, but {error}; delete it") from error


def delay_seconds(due_at: Instant, now: Instant) -> int | None:
    """The delay of a message for this due time, rounded up so that the message is not early; None if the due time is too
    far away for a message."""
    seconds = max(0, -((now - due_at) // SECOND))
    return seconds if seconds <= DELAY_SECONDS_MAX else None
