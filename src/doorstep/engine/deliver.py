"""The path of a delivery through one worker, top to bottom:

    claim     take due deliveries under a lease               (claim.py)
    begin     those that have a place are signed and sent      (attempt.py, transports/)
    done      replies come back; each is judged and decided    (policy/)
    settle    the decisions are written, fenced by the token   (settle.py)

Everything works on batches. Nothing here waits for a receiver: tries run in the transports.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.attempt import prepare
from doorstep.engine.buffer import ClaimBuffer
from doorstep.engine.circuits import Circuits
from doorstep.engine.claim import Claimer
from doorstep.engine.directory import Directory, Profile, Tuning
from doorstep.engine.settle import Settler
from doorstep.errors import DoorstepError
from doorstep.model.attempt import Code, Failure, Outcome, Reply
from doorstep.model.claim import Claim, Settlement
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.policy.classification import (
    DELETED_WHILE_WAITING,
    EXPIRED_WHILE_WAITING,
    classify,
    lost_worker,
    no_reply,
    without_try,
)
from doorstep.policy.retry import Random, settlement_for
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.redaction import safe_message
from doorstep.transports.transport import Transmission, Transport

_UNSETTLED_MAX = 5_000
"""Results waiting to be written; with more than this (a store that is down or slow) nothing new is claimed."""
_LAST_WRITES_SECONDS = 2.0
"""How long a stopping worker waits for the store to take its last results."""
_LOOK_SECONDS = 0.02


class Deliverer:
    """One worker's path. `round` claims and begins; the transports call `done` when replies are there."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        http: Transport,
        handlers: Transport,
        clock: Clock,
        random: Random,
        tuning: Tuning,
        telemetry: Telemetry,
        worker: str,
        wake: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._http = http
        self._handlers = handlers
        self._clock = clock
        self._random = random
        self._telemetry = telemetry
        self._wake = wake
        self._settle_slack = seconds(tuning.settle_slack_seconds)
        self.hand = ClaimBuffer()
        self.under_way: dict[tuple[object, int], Claim] = {}
        circuits = Circuits(store, directory, clock, tuning, telemetry)
        self._claimer = Claimer(
            store, directory, circuits, self.hand, clock, tuning, telemetry, worker, handlers.serves, handlers.places
        )
        self.settler = Settler(store, circuits, clock, telemetry, self._hold, wake, tuning.settle_linger_seconds)

    # -- claim and begin -----------------------------------------------------------------------------------

    async def round(self) -> Instant | None:
        """Claim what there are places for and begin it; returns when another round can bring more."""
        if self.settler.backlog > _UNSETTLED_MAX:
            return self._clock.now() + seconds(0.05)
        claimed = await self._claimer.claim()
        self._fill_places()
        self.hand.forget_idle(self._clock.now())
        return claimed.next_at

    def _fill_places(self) -> None:
        """Begin what has a place, until the places are full: a claim that is put down leaves its place to the next.

        So whatever waits in the hand has another claim of its endpoint under way, whose end will fetch it.
        """
        while claims := self.hand.deal():
            self._begin(claims)

    def _begin(self, claims: Sequence[Claim]) -> None:
        now, tracing = self._clock.now(), self._telemetry.tracing
        to_urls: list[Transmission] = []
        to_handlers: list[Transmission] = []
        for claim in claims:
            profile = self._ready(claim, now)
            if profile is None:
                self.hand.put_down(claim.endpoint_id)
                self.hand.let_go([claim])
            else:
                self.under_way[claim.key, claim.token] = claim
                (to_urls if profile.endpoint.url else to_handlers).append(prepare(claim, profile, now, tracing))
        if to_urls:
            self._http.start(to_urls)
        if to_handlers:
            self._handlers.start(to_handlers)

    def _ready(self, claim: Claim, now: Instant) -> Profile | None:
        """What the try needs; None where it must not be made, after seeing to it that the claim ends otherwise."""
        try:
            profile = self._directory.profile(claim.endpoint_id, now)
        except DoorstepError as error:  # the endpoint's secrets cannot be opened with this process's key
            self.settler.put([self._decide(claim, _unsealed(claim, error, now))])
            return None
        if profile is None:
            self._settle_untried(claim, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING, now)
        elif claim.expires_at is not None and claim.expires_at <= now:
            self._settle_untried(claim, Code.EXPIRED, EXPIRED_WHILE_WAITING, now)
        elif claim.lease_until < now + seconds(profile.timeout_seconds) + self._settle_slack:
            # It waited too long, behind slow tries or in a frozen process: its result could come after the lease.
            self.settler.hand_back([claim])
        elif profile.endpoint.state is not EndpointState.ACTIVE:  # stopped since it was claimed: held from now on
            self.settler.hand_back([claim])
        else:
            return profile
        return None

    def _settle_untried(self, claim: Claim, code: str, reason: str, now: Instant) -> None:
        self.settler.put([Settlement.dead(claim, without_try(claim, code, reason, now))])

    # -- done ----------------------------------------------------------------------------------------------

    def done(self, replies: Sequence[tuple[Transmission, Reply]]) -> None:
        """Judge replies, pass the decisions on to be written, and fill the places that became free."""
        now = self._clock.now()
        claims = [self._tried(transmission) for transmission, _ in replies]
        judged = (self._judge(claim, reply) for claim, (_, reply) in zip(claims, replies, strict=True))
        self.settler.put([settlement for settlements in judged for settlement in settlements])
        self.hand.let_go(claims)
        finished = Counter(claim.endpoint_id for claim in claims)
        for endpoint_id, count in finished.items():
            self.hand.finished(endpoint_id, count, now)
        self._fill_places()
        if any(self.hand[endpoint_id].hungry for endpoint_id in finished):
            self._wake()

    def _tried(self, transmission: Transmission) -> Claim:
        """The claim as it was taken: what was sent may have had the payload in an envelope."""
        sent = transmission.claim
        return self.under_way.pop((sent.key, sent.token))

    def _judge(self, claim: Claim, reply: Reply) -> list[Settlement]:
        """The decision about one reply. None if deciding fails, which is a bug of ours: its lease will end it.

        Nor for a try that never began, for want of a thread or a process: its claim goes back.
        """
        if self.hand.may_go_back(claim, reply.begun):
            self.settler.hand_back([claim])
            return []
        try:
            return [self._decide(claim, reply)]
        except Exception as error:  # noqa: BLE001  the other replies of the batch must not be lost with it
            message = f"a reply could not be judged: {safe_message(error)}"
            fields: dict[str, object] = {"delivery_id": claim.delivery_id, "correlation_id": claim.correlation_id}
            self._telemetry.emit(Notice(at=to_iso(reply.finished_at), level="error", message=message, fields=fields))
            return []

    def _decide(self, claim: Claim, reply: Reply) -> Settlement:
        endpoint = self._directory.endpoint(claim.endpoint_id)
        if endpoint is None:  # deleted while it was tried: a success counts all the same, a failure is final
            outcome = classify(reply, _UNKNOWN_ENDPOINT)
            return Settlement.delivered(claim, outcome) if outcome.succeeded else Settlement.dead(claim, outcome)
        outcome = classify(reply, endpoint)
        if outcome.succeeded:
            return Settlement.delivered(claim, outcome)
        return self._settlement(claim, outcome, endpoint)

    def _settlement(self, claim: Claim, outcome: Outcome, endpoint: Endpoint) -> Settlement:
        return settlement_for(claim, outcome, self._directory.policy(endpoint, claim.event_type), self._random)

    def _hold(self, endpoint_ids: set[UUID]) -> None:
        """A circuit opened: what was claimed ahead for it goes back, no attempt counted."""
        for endpoint_id in endpoint_ids:
            self.settler.hand_back(self.hand.give_up_waiting(endpoint_id))

    # -- stopping ------------------------------------------------------------------------------------------

    async def drain(self, grace_seconds: float) -> None:
        """Hand back what was not started, wait for what was, and see everything written down.

        The settler must still be running. A store that takes nothing is not waited for: the leases will end.
        """
        self.settler.hand_back(self.hand.give_up_waiting())
        await _until(lambda: not self.under_way, grace_seconds)
        await self._http.close()
        await self._handlers.close()
        self._cut_off(list(self.under_way.values()))
        await _until(lambda: not self.settler.backlog, _LAST_WRITES_SECONDS)

    def _cut_off(self, claims: Sequence[Claim]) -> None:
        """Tries that outlasted the grace period count as failed and are due at once; none dies of our stopping."""
        now = self._clock.now()
        for claim in claims:
            endpoint = self._directory.endpoint(claim.endpoint_id)
            outcome = lost_worker(claim, now)
            settlement = endpoint and self._settlement(claim, outcome, endpoint)
            if settlement and settlement.due_at is not None:
                self.settler.put([settlement])
            else:
                self.settler.hand_back([claim])
        self.under_way.clear()


async def _until(over: Callable[[], bool], seconds_max: float) -> None:
    waited = 0.0
    while not over() and waited < seconds_max:
        await asyncio.sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def _unsealed(claim: Claim, error: DoorstepError, now: Instant) -> Reply:
    failure = Failure(Code.UNSEALABLE, "The endpoint's secrets cannot be opened on this worker.", detail=str(error))
    return no_reply(claim, now, now, failure)


_UNKNOWN_ENDPOINT = Endpoint(endpoint_id=UUID(int=0), org_id=UUID(int=0), name="", created_at=0)
