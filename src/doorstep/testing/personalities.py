"""How a receiver behaves: personalities, and whoever plays them; with a socket (`Receiver`) or without a network.

A personality is a function of the request. Write your own for anything that is not here:

    def picky(request: Request) -> Answer:
        return Answer(422) if b"forty-three" in request.body else Answer(200)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from doorstep.clock import SECOND, Clock, Instant
from doorstep.receiver import Unverified, Webhook


class Request(NamedTuple):
    """One try, as the receiver saw it."""

    url: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at: Instant
    flaw: str = ""
    """What is wrong with its signature, in a sentence; empty where it is right, or where nobody looked."""

    @property
    def path(self) -> str:
        """The path of its URL."""
        return urlsplit(self.url).path

    @property
    def event_id(self) -> str:
        """The same for all tries of an event."""
        return self.headers["webhook-id"]

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class Manner(Enum):
    """What becomes of the connection."""

    ANSWERS = "answers"
    DRIBBLES = "dribbles"
    """Sends its answer byte by byte, one a second."""
    RESETS = "resets"
    SAYS_NOTHING = "says nothing"


class Answer(NamedTuple):
    """What a receiver does with a request."""

    status: int = 200
    headers: tuple[str, ...] = ()
    """`Name: value` lines."""
    body: bytes = b""
    after_seconds: float = 0.0
    manner: Manner = Manner.ANSWERS


Personality = Callable[[Request], Answer]
"""How a receiver behaves: any function of a request that gives an answer."""


# -- personalities -------------------------------------------------------------------------------------------------


def ok(_: Request) -> Answer:
    """Takes everything."""
    return Answer()


def status(code: int, *headers: str, body: bytes = b"") -> Personality:
    """Always answers the same: `status(503, "Retry-After: 30")`."""
    return lambda _: Answer(code, headers, body)


def scripted(answers: Sequence[int | Answer]) -> Personality:
    """Answers these one after the other, and the last one from then on."""
    left = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
    if not left:
        raise ValueError("scripted needs at least one answer")
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def flaky(share: float, code: int = 503, seed: int = 0) -> Personality:
    """Fails this share of the requests; the same ones in every run, unless given another seed."""
    dice = random.Random(seed)
    return lambda _: Answer(code if dice.random() < share else 200)


def slow(span_seconds: float, then: Personality = ok) -> Personality:
    """Thinks first. On a socket these are real seconds."""
    return lambda request: then(request)._replace(after_seconds=span_seconds)


def dead(_: Request) -> Answer:
    """Takes the request and never answers: a timeout."""
    return Answer(manner=Manner.SAYS_NOTHING)


def dribble(_: Request) -> Answer:
    """Answers one byte a second: a timeout too, for a client that watches the whole of an attempt."""
    return Answer(body=b"." * 60, manner=Manner.DRIBBLES)


def reset(_: Request) -> Answer:
    """Hangs up instead of answering."""
    return Answer(manner=Manner.RESETS)


# -- who plays them ------------------------------------------------------------------------------------------------


class Player:
    """Plays a personality, other ones where told, and keeps every request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.requests: list[Request] = []
        """In the order of their arrival."""
        self._usual: Personality = ok
        self._elsewhere: dict[str, Personality] = {}
        self._webhook: Webhook | None = None

    def behaves(self, personality: Personality, at: str | None = None) -> None:
        """From now on, everywhere; or only `at` a URL or path."""
        if at is None:
            self._usual = personality
        else:
            self._elsewhere[at] = personality

    def verifies(self, *secrets: str) -> None:
        """From now on, answers 401 to what was not signed with one of these secrets, and keeps why as its `flaw`."""
        self._webhook = Webhook(*secrets)

    def play(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What it answers to a request; one that is not genuine is a 401."""
        request = Request(url, headers, body, self.clock.now(), self._flaw(headers, body))
        self.requests.append(request)
        usual = self._elsewhere.get(request.path, self._usual)
        return Answer(401) if request.flaw else self._elsewhere.get(url, usual)(request)

    def _flaw(self, headers: Mapping[str, str], body: bytes) -> str:
        if self._webhook is None:
            return ""
        try:
            self._webhook.verify(headers, body, now=self.clock.now() / SECOND)
        except Unverified as error:
            return str(error)
        return ""
