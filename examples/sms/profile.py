"""All that makes Doorstep an SMS gateway: one batch handler, what the carrier's codes mean, and whom to alert.

| the carrier says | Doorstep understands | and then |
| --- | --- | --- |
| BUSY-03 | SERVICE_UNAVAILABLE | submits again after 300, 600 and 1200 s |
| RATE-02 | RATE_LIMIT | submits again when the carrier asked for it |
| NUM-04 | INVALID_FORMAT | gives up at once |
| REJ-05 | BATCH_REJECTED | gives up at once |
| AUTH-01 | AUTH_FAILED | gives up at once |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from doorstep import DeadLetter, Doorstep, Received, Transient

CARRIER_CODES = {
    "BUSY-03": "SERVICE_UNAVAILABLE",
    "RATE-02": "RATE_LIMIT",
    "NUM-04": "INVALID_FORMAT",
    "REJ-05": "BATCH_REJECTED",
    "AUTH-01": "AUTH_FAILED",
}
"""A code that is not here is kept as it is, and what it stands for is tried again."""
BATCH = "sms.batch"
TIMEOUT_SECONDS = 10

_open = build_opener(ProxyHandler({})).open


class Sms:
    """The gateway of this program to one carrier."""

    def __init__(self, url: str, api_key: str, alert: Callable[[str], object]) -> None:
        self._url = url
        self.api_key = api_key
        self._alert = alert

    def declare(self, doorstep: Doorstep) -> None:
        doorstep.batch(BATCH, name="carrier", policy="carrier", code_map=CARRIER_CODES)(self.submit)
        doorstep.on_dead_letter(self.give_alarm)

    def submit(self, batch: Received) -> bytes:
        """What is returned is kept in the carrier log, like the `response` of a failure.

        The carrier knows a batch by its id, which is the same at every attempt: if only its answer was lost, nobody
        gets a message twice.
        """
        body = {"batch_id": str(batch.event_id), "messages": batch.json()["messages"]}
        headers = {"content-type": "application/json", "x-carrier-key": self.api_key}
        try:
            with _open(Request(self._url, json.dumps(body).encode(), headers), timeout=TIMEOUT_SECONDS) as answer:
                said: bytes = answer.read()
                return said
        except HTTPError as refusal:
            raise _failure(refusal) from None
        except (OSError, HTTPException) as error:
            raise Transient("CONNECTION", "The carrier cannot be reached, or its answer was lost.") from error

    def give_alarm(self, letter: DeadLetter) -> None:
        """Called once for each dead letter of this process, whatever it was: here only batches are worth an alarm."""
        if letter.event_type != BATCH:
            return
        self._alert(f"ALERT: a batch failed permanently at attempt {letter.attempts}: {letter.code}. {letter.reason}")


def _failure(refusal: HTTPError) -> Transient:
    """The carrier's own code decides, by the code map, whether that is worth another try."""
    said = refusal.read()
    code = _code_in(said) or "BAD_RESPONSE"
    pause = refusal.headers.get("retry-after", "")
    return Transient(code, f"The carrier answered {code}.", float(pause) if pause.isdigit() else None, response=said)


def _code_in(said: bytes) -> str | None:
    """None where it was not the carrier that answered, but a proxy before it."""
    try:
        return str(json.loads(said)["code"])
    except (ValueError, KeyError, TypeError):
        return None
