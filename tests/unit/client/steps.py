"""Runs a client's steps without network or waiting, and records every request and pause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from doorstep.client.call import Call, Silence
from doorstep.client.errors import Answer
from doorstep.client.verbs import Invoke, Pause, Reply, Step, Steps

T = TypeVar("T")


@dataclass
class World:
    """Answers requests from a list and repeats the last answer. Time passes in pauses and, if set, per request."""

    answers: list[Answer | Silence]
    requests: list[Call[Any]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    now: float = 1_000.0
    seconds_a_request: float = 0.0

    def run(self, steps: Steps[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            reply = self._take(step)

    def _take(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            self.now += step.seconds
            if step.seconds:
                self.pauses.append(step.seconds)
            return self.now
        if isinstance(step, Invoke):
            return step.run()
        self.requests.append(step)
        self.now += self.seconds_a_request
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def answers(*those: Answer | Silence) -> World:
    return World(list(those))


def ok(content: Any = None, status: int = 200) -> Answer:
    return Answer(status, {}, msgspec.json.encode(content))


def refusal(status: int, code: str = "some_code", *, headers: Iterable[tuple[str, str]] = (), **more: Any) -> Answer:
    body = {"type": f"urn:doorstep:problem:{code}", "title": "A title", "status": status, "detail": "a detail", **more}
    return Answer(status, dict(headers), msgspec.json.encode(body))
