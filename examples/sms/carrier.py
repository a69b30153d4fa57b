"""A simulated carrier with its own error codes: `python -m examples.sms.carrier`, or with the server.

It recognizes a batch by its id. If a response is lost and Doorstep submits the same batch again, the carrier sends the
messages only once. To make it fail, and to repair it:

    curl -X PUT http://127.0.0.1:8090/batches -d '503 {"code": "SERVICE_UNAVAILABLE"}'
    curl -X PUT http://127.0.0.1:8090/batches -d 200
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from examples.counterpart import Answer, Counterpart, Say, main, printed
from examples.sms.gateway import KEY

_NUMBER = re.compile(r"\+[1-9]\d{6,14}")


def refusal(status: int, code: str, text: str, retry_after_seconds: int | None = None) -> Answer:
    return Answer(status, {"code": code, "text": text}, retry_after_seconds)


WRONG_KEY = refusal(401, "AUTH-01", "unknown API key")
TOO_MANY = refusal(429, "RATE-02", "too many batches", 120)
BUSY = refusal(503, "BUSY-03", "all lines are busy")
NO_NUMBER = refusal(422, "NUM-04", "a recipient is not a phone number")
PROXY_ALONE = Answer(502, "<h1>Bad Gateway</h1>")
REJECTED = refusal(409, "REJ-05", "the batch was rejected")


class Carrier(Counterpart):
    """Gives the configured answers first; after that, it accepts every valid batch."""

    api_key = KEY
    lost_answers = 0
    """How many of the next answers are lost before they reach the client."""

    def __init__(self, port: int, say: Say = printed) -> None:
        super().__init__(port, say)
        self.script: list[Answer] = []
        """The answers to the next requests, whatever these requests contain."""
        self.references: dict[str, str] = {}
        """The carrier's reference for each accepted batch, by batch id."""

    @property
    def environment(self) -> dict[str, str]:
        return {"CARRIER_URL": f"{self.url}/batches"}

    @property
    def requests(self) -> int:
        return self.received.total()

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        answer = self._judge(headers.get("x-carrier-key"), body)
        if self.lost_answers:
            self.lost_answers -= 1
            return None
        return answer

    def _judge(self, api_key: str | None, body: bytes) -> Answer:
        if self.script:
            return self.script.pop(0)
        if api_key != self.api_key:
            return WRONG_KEY
        batch = json.loads(body)
        if not all(_NUMBER.fullmatch(message["to"]) for message in batch["messages"]):
            return NO_NUMBER
        reference = self.references.setdefault(batch["batch_id"], f"C-{len(self.references) + 1}")
        return Answer(202, {"reference": reference, "messages": len(batch["messages"])})


if __name__ == "__main__":
    main(Carrier)
