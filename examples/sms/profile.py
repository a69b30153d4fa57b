"""The configuration of an SMS gateway: one batch handler, the carrier's codes, and an alert function.

| carrier's code | Doorstep's code | effect |
| --- | --- | --- |
| BUSY-03 | SERVICE_UNAVAILABLE | retries after 300, 600 and 1200 s |
| RATE-02 | RATE_LIMIT | retries when the carrier allows it |
| NUM-04 | INVALID_FORMAT | fails permanently |
| REJ-05 | BATCH_REJECTED | fails permanently |
| AUTH-01 | AUTH_FAILED | fails permanently |
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
"""Maps the carrier's codes to Doorstep's codes. A code that is not listed is kept as it is and leads to a retry."""
BATCH = "sms.batch"
TIMEOUT_SECONDS = 10

_open = build_opener(ProxyHandler({})).open


class Sms:
    """The gateway to one carrier."""

    def __init__(self, url: str, api_key: str, alert: Callable[[str], object]) -> None:
        self._url = url
        self.api_key = api_key
        self._alert = alert

    def declare(self, doorstep: Doorstep) -> None:
        doorstep.batch(BATCH, name="carrier", policy="carrier", code_map=CARRIER_CODES)(self.submit)
        doorstep.on_dead_letter(self.give_alarm)

    def submit(self, batch: Received) -> bytes:
        """Submits a batch and returns the carrier's answer, which Doorstep stores in the carrier log.

        The carrier recognizes a batch by its id, which is the same for every attempt. So if an answer is lost, nobody
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
        """Called once for each dead letter of this process; only batches cause an alert."""
        if letter.event_type != BATCH:
            return
        self._alert(f"ALERT: a batch failed permanently at attempt {letter.attempts}: {letter.code}. {letter.reason}")


def _failure(refusal: HTTPError) -> Transient:
    """Reports the carrier's own code. The code map translates it, and the translated code decides whether to retry."""
    said = refusal.read()
    code = _code_in(said) or "BAD_RESPONSE"
    pause = refusal.headers.get("retry-after", "")
    return Transient(code, f"The carrier answered {code}.", float(pause) if pause.isdigit() else None, response=said)


def _code_in(said: bytes) -> str | None:
    """Returns the carrier's error code, or None if the answer came from a proxy and not from the carrier."""
    try:
        return str(json.loads(said)["code"])
    except (ValueError, KeyError, TypeError):
        return None
