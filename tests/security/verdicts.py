"""Sends the same request to both stores, and compares the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.http_calls import Answer
from tests.support.program import ADMIN_KEY, Program

_PARTICULARS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z")


class Verdict(NamedTuple):
    """The part of an answer that must be the same for every store."""

    status: int
    kind: str
    words: str

    @property
    def refused(self) -> bool:
        return 400 <= self.status < 500


def verdict_of(answer: Answer) -> Verdict:
    """The verdict of an answer. Every refusal must be a problem document in our own words."""
    kind = answer.headers.get("content-type", "")
    if answer.status < 400:
        return Verdict(answer.status, kind, "")
    assert answer.status < 500, answer.body
    assert kind == "application/problem+json", (kind, answer.body)
    assert b"Traceback" not in answer.body and b".py" not in answer.body, answer.body
    assert answer.json["status"] == answer.status
    return Verdict(answer.status, kind, _PARTICULARS.sub("…", answer.json["detail"]))


def same_verdict(
    each: Mapping[str, Program],
    method: str,
    path: str,
    body: Any = None,
    *,
    key: str | None = ADMIN_KEY,
    headers: Mapping[str, str] = {},
) -> Verdict:
    """The verdict on which both stores agree."""
    said = {name: verdict_of(it.request(method, path, body, key=key, headers=headers)) for name, it in each.items()}
    verdicts = set(said.values())
    assert len(verdicts) == 1, said
    return verdicts.pop()
