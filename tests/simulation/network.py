"""The network and its receivers. Each endpoint has a personality, and every request that arrives is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from random import Random
from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Clock, Instant
from doorstep.model.attempt import Code, Failure, Reply
from doorstep.transports.transport import Done, Transmission
from tests.simulation.trace import Trace, short
from tests.simulation.virtual_loop import Process, VirtualLoop

POISON = b'{"poison"'
"""A payload with this prefix kills every worker that handles it."""


class Reaction(NamedTuple):
    """How a receiver reacts to one request."""

    status: int | None = 200
    failure: str | None = None
    headers: bytes = b""
    after_seconds: float = 0.02
    arrives: bool = True


Personality = Callable[[Random], Reaction]

PERSONALITIES: dict[str, Personality] = {
    "ok": lambda random: Reaction(after_seconds=0.01 + 0.05 * random.random()),
    "flaky": lambda random: Reaction(random.choice((200, 500, 503))),
    "slow": lambda random: Reaction(after_seconds=0.4 + 0.7 * random.random()),
    "dead": lambda random: Reaction(None, Code.CONNECTION, arrives=False),
    "hanging": lambda random: Reaction(after_seconds=1_000),
    "busy": lambda random: Reaction(429, headers=b"\r\nRetry-After: %d\r\n" % random.randint(0, 2)),
    "loses answers": lambda random: Reaction(None, Code.CONNECTION),
    "at times": lambda random: PERSONALITIES[random.choice(("ok", "dead", "hanging", "slow"))](random),
    "rejecting": lambda random: Reaction(random.choice((400, 404, 422))),
    "gone": lambda random: Reaction(410),
    "weary": lambda random: Reaction(500, headers=b"\r\nwebhook-delivery: abort-message\r\n"),
    "failing": lambda random: Reaction(500),
}
OUTAGES = ("failing", "dead", "hanging")
"""The personalities of receivers that are down."""
STUBBORN = frozenset({"rejecting", "weary"})
"""These personalities stay when everything else is healed: their deliveries end as dead letters."""


class Request(NamedTuple):
    """A request as it was sent; `arrived_at` is None if no receiver got it."""

    begun_at: Instant
    """By the worker's own clock."""
    arrived_at: Instant | None
    worker: str
    delivery_id: UUID
    event_id: UUID
    token: int
    attempt: int
    lease_until: Instant
    timeout_seconds: float
    target: str
    headers: tuple[str, ...]
    body: bytes


class Network:
    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace, kill: Callable[[Process], None]) -> None:
        self.personalities: dict[str, str] = {}
        self.requests: list[Request] = []
        self._loop = loop
        self._random = random
        self._trace = trace
        self._kill = kill
        self._world = copy_context()

    def heal(self) -> None:
        """Make every receiver answer normally from now on, except the stubborn ones."""
        for target, personality in self.personalities.items():
            if personality not in STUBBORN:
                self.personalities[target] = "ok"

    def send(self, line: Line, transmission: Transmission) -> None:
        if transmission.claim.payload.startswith(POISON):
            self._trace.note(line.process.name, "is killed by the payload of", short(transmission.claim.delivery_id))
            self._kill(line.process)
            return
        reaction = PERSONALITIES[self.personalities[transmission.target]](self._random)
        begun_at = line.clock.now()
        self._loop.call_later(
            reaction.after_seconds / 2 if reaction.after_seconds < 10 else 0.01,
            self._arrive, line.process.name, transmission, begun_at, reaction.arrives, context=self._world,
        )  # fmt: skip
        if reaction.after_seconds < transmission.timeout_seconds:
            self._loop.call_later(reaction.after_seconds, line.reply, transmission, begun_at, reaction)
        else:
            timeout = Reaction(None, Code.TIMEOUT)
            self._loop.call_later(transmission.timeout_seconds, line.reply, transmission, begun_at, timeout)

    def _arrive(self, worker: str, transmission: Transmission, begun_at: Instant, arrives: bool) -> None:
        claim = transmission.claim
        verdict = "reaches" if arrives else "does not reach"
        self._trace.note(worker, f"request #{claim.attempt} of", short(claim.delivery_id), verdict, transmission.target)
        self.requests.append(
            Request(
                begun_at,
                self._loop.now if arrives else None,
                worker,
                claim.delivery_id,
                claim.event_id,
                claim.token,
                claim.attempt,
                claim.lease_until,
                transmission.timeout_seconds,
                transmission.target,
                transmission.headers,
                claim.payload,
            )
        )


class Line:
    """A Transport: one worker's connection to the network. Its timers run in the worker and freeze with it."""

    def __init__(self, network: Network, process: Process, clock: Clock) -> None:
        self.process = process
        self.clock = clock
        self._network = network
        self._done: Done | None = None

    def open(self, done: Done) -> None:
        self._done = done

    def serves(self, target: str, org_id: UUID) -> bool:
        return True

    def slots(self, target: str) -> int | None:
        return None

    def start(self, transmissions: Sequence[Transmission]) -> None:
        for transmission in transmissions:
            if not self.process.dead:
                self._network.send(self, transmission)

    async def close(self) -> None:
        self._done = None

    def reply(self, transmission: Transmission, begun_at: Instant, reaction: Reaction) -> None:
        if self._done is None:
            return
        failure = None if reaction.failure is None else Failure(reaction.failure, "the network says so")
        reply = Reply(
            started_at=begun_at,
            finished_at=self.clock.now(),
            status=reaction.status,
            headers=reaction.headers,
            failure=failure,
        )
        self._done([(transmission, reply)])
