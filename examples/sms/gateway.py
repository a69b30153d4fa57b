"""The gateway to one carrier: the call that submits a batch, and the table of the carrier's codes.

| carrier's code | code | effect |
| --- | --- | --- |
| TIMEOUT, RATE_LIMIT, SERVICE_UNAVAILABLE | the same | retries after 300, 600 and 1200 s |
| BUSY-03 | SERVICE_UNAVAILABLE | retries after 300, 600 and 1200 s |
| RATE-02 | RATE_LIMIT | retries when the carrier allows it |
| AUTH_FAILED, INVALID_FORMAT, BATCH_REJECTED | the same | fails permanently |
| NUM-04 | INVALID_FORMAT | fails permanently |
| REJ-05 | BATCH_REJECTED | fails permanently |
| AUTH-01 | AUTH_FAILED | fails permanently |
"""

from __future__ import annotations

import json
import os
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from doorstep import Permanent, Received, Transient

CARRIER_CODES = {
    "TIMEOUT": "TIMEOUT",
    "RATE_LIMIT": "RATE_LIMIT",
    "RATE-02": "RATE_LIMIT",
    "SERVICE_UNAVAILABLE": "SERVICE_UNAVAILABLE",
    "BUSY-03": "SERVICE_UNAVAILABLE",
    "AUTH_FAILED": "AUTH_FAILED",
    "AUTH-01": "AUTH_FAILED",
    "INVALID_FORMAT": "INVALID_FORMAT",
    "NUM-04": "INVALID_FORMAT",
    "BATCH_REJECTED": "BATCH_REJECTED",
    "REJ-05": "BATCH_REJECTED",
}
"""The carrier's codes. A code in this table decides whether the batch is retried, whichever exception carried it. For a
code that is not in the table, the exception decides."""
URL, KEY = "http://127.0.0.1:8090/batches", "carrier-key"
"""The carrier of the example."""

_open = build_opener(ProxyHandler({})).open


class Gateway:
    """Submits batches to a carrier. By default, the environment says to which one."""

    def __init__(self, url: str | None = None, api_key: str | None = None) -> None:
        self.url = url or os.environ.get("CARRIER_URL", URL)
        self.api_key = api_key or os.environ.get("CARRIER_KEY", KEY)
        self.timeout_seconds = float(os.environ.get("CARRIER_TIMEOUT_SECONDS", "10"))

    def submit(self, batch: Received) -> bytes:
        """Submit a batch and return the carrier's response, which Doorstep stores in the carrier log.

        The carrier recognizes a batch by its id, which is the same for every attempt. So if a response is lost, nobody
        gets a message twice. Doorstep itself recognizes a plain TimeoutError or ConnectionError.
        """
        body = {"batch_id": str(batch.event_id), "messages": batch.json()["messages"]}
        headers = {"content-type": "application/json", "x-carrier-key": self.api_key}
        request = Request(self.url, json.dumps(body).encode(), headers)
        try:
            with _open(request, timeout=self.timeout_seconds) as response:
                said: bytes = response.read()
                return said
        except HTTPError as refusal:
            raise _failure(refusal) from None


def _failure(refusal: HTTPError) -> Transient | Permanent:
    """The carrier's own code, in the exception that the HTTP status suggests."""
    said = refusal.read()
    code = _code_in(said)
    if code is None:
        return Transient("BAD_RESPONSE", "The response is not the carrier's.", response=said)
    sentence = f"The carrier answered {code}."
    if refusal.code < 500 and refusal.code != 429:
        return Permanent(code, sentence, response=said)
    pause = refusal.headers.get("retry-after", "")
    return Transient(code, sentence, float(pause) if pause.isdigit() else None, response=said)


def _code_in(said: bytes) -> str | None:
    """The carrier's error code; None if the response came from a proxy and not from the carrier."""
    try:
        return str(json.loads(said)["code"])
    except (ValueError, KeyError, TypeError):
        return None
