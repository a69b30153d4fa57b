"""The path of a delivery through one worker, from top to bottom:

    claim     take due deliveries under a lease                      (claim.py)
    start     sign and send those that have a slot                   (attempt.py, transports/)
    done      classify each reply and decide what happens next       (policy/)
    settle    write the decisions, fenced by the token of the claim  (settle.py)

Everything works on batches. Nothing here waits for a receiver: attempts run in the transports.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from doorstep.clock import Clock, Instant, seconds
from doorstep.encryption import UnsealError
from doorstep.engine.attempt import prepare
from doorstep.engine.buffer import ClaimBuffer
from doorstep.engine.capacity import Capacity
from doorstep.engine.circuits import Circuits
from doorstep.engine.claim import Claimer
from doorstep.engine.directory import Directory, Profile, Tuning
from doorstep.engine.intake import Intake
from doorstep.engine.settle import Settler
from doorstep.model.attempt import Code, Failure, Outcome, Reply
from doorstep.model.claim import Claim, Settlement
from doorstep.model.endpoint import Endpoint, EndpointState, HandlerDestination
from doorstep.policy.classification import (
    DELETED_WHILE_WAITING,
    EXPIRED_WHILE_WAITING,
    classify,
    lost_worker,
    without_attempt,
)
from doorstep.policy.retry import Random, settlement_for
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.redaction import safe_message
from doorstep.transports.transport import Transmission, Transport

_LAST_WRITES_SECONDS = 2.0
"""How long a stopping worker waits for the store to accept its last results."""
_POLL_SECONDS = 0.02


class Deliverer:
    """The path through one worker. `round` claims and starts; the transports call `done` with the replies."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        transports: Mapping[str, Transport],
        clock: Clock,
        random: Random,
        tuning: Tuning,
        telemetry: Telemetry,
        worker: str,
        wake: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._transports = transports
        self._clock = clock
        self._random = random
        self._telemetry = telemetry
        self._wake = wake
        self._settle_slack = seconds(tuning.settle_slack_seconds)
        self.buffer = ClaimBuffer()
        self.in_flight: dict[tuple[object, int], Claim] = {}
        directory.keep(lambda: {claim.org_id for claim in self.in_flight.values()})
        circuits = Circuits(store, directory, clock, tuning, telemetry)
        self._capacity = Capacity(tuning.slots, telemetry)
        self._claimer = Claimer(
            store,
            directory,
            circuits,
            self.buffer,
            clock,
            tuning,
            telemetry,
            worker,
            transports,
            self._capacity,
        )
        self.settler = Settler(
            store, circuits, clock, telemetry, self._release_waiting, wake, tuning.settle_linger_seconds
        )
        self.intake = Intake(self._claimer, self.buffer, tuning, worker, self._fill_slots, self.settler, self._capacity)

    # -- claim and start -----------------------------------------------------------------------------------

    async def round(self) -> Instant | None:
        """Claim deliveries for the free slots and start them. Returns when another round may claim more."""
        if self.settler.is_behind:
            return self._clock.now() + seconds(0.05)
        now = self._clock.now()
        if pause := self._capacity.pause_left(now):
            return now + pause
        next_at = await self._claimer.claim()
        self._fill_slots()
        self.buffer.forget_idle(self._clock.now())
        return next_at

    @property
    def idle(self) -> bool:
        """Whether the last round found nothing to attempt."""
        return not self._claimer.backlogged

    def _fill_slots(self) -> None:
        """Start claims until all slots are taken. If a claim is cancelled, the next one gets its slot.

        So while a claim waits in the buffer, its endpoint always has an attempt in flight. When that attempt ends, the
        next claim starts.
        """
        while claims := self.buffer.start():
            self._start(claims)

    def _start(self, claims: Sequence[Claim]) -> None:
        now = self._clock.now()
        transmissions: defaultdict[str, list[Transmission]] = defaultdict(list)
        for claim in claims:
            prepared = self._prepared(claim, now)
            if prepared is None:
                self.buffer.cancel(claim)
            else:
                kind, transmission = prepared
                self.in_flight[claim.key, claim.token] = claim
                transmissions[kind].append(transmission)
        for kind, batch in transmissions.items():
            try:
                self._transports[kind].start(batch)
            except Exception as error:  # noqa: BLE001  the other claims must be started, and the slots given back
                self._not_started(batch, now, error)

    def _not_started(self, batch: Sequence[Transmission], now: Instant, error: Exception) -> None:
        """Free the slots of attempts that their transport failed to start, which is a bug in it. As with any attempt
        that could not start, the claims are released, but not forever (`ClaimBuffer.should_release`)."""
        message = f"{len(batch)} attempts could not be started: {safe_message(error)}"
        self._telemetry.note(now, "error", message)
        failure = Failure(Code.WORKER_LOST, "The worker could not start the attempt.")
        reply = Reply(started_at=now, finished_at=now, failure=failure, started=False)
        self._finish([(one, reply) for one in batch], now)

    def _prepared(self, claim: Claim, now: Instant) -> tuple[str, Transmission] | None:
        """The kind of the transport and what it shall send; None if the attempt must not or cannot be made."""
        try:
            profile = self._ready(claim, now)
            return (profile.kind, prepare(claim, profile, now, self._telemetry.tracing)) if profile else None
        except Exception as error:  # noqa: BLE001  the other claims must be started
            self._note_bug(claim, now, f"an attempt could not be prepared: {safe_message(error)}")
            return None

    def _ready(self, claim: Claim, now: Instant) -> Profile | None:
        """The profile for the attempt. If the attempt must not be made, the claim is settled or released here, and the
        result is None."""
        try:
            profile = self._directory.profile(claim.endpoint_id, now)
        except UnsealError as error:  # not the delivery's fault: it costs no attempt, and no more are claimed
            message = f"this worker leaves the deliveries of an endpoint to other workers: {error}"
            self._telemetry.note(now, "error", message, endpoint_id=claim.endpoint_id)
            self.settler.release([claim])
            return None
        if profile is None and not self._directory.is_loaded(claim.org_id):  # it was forgotten, for lack of room
            self.settler.release([claim])
        elif profile is None:
            self._settle_unattempted(claim, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING, now)
        elif claim.expires_at is not None and claim.expires_at <= now:
            self._settle_unattempted(claim, Code.EXPIRED, EXPIRED_WHILE_WAITING, now)
        elif claim.lease_until < now + seconds(profile.timeout_seconds) + self._settle_slack:
            # It waited too long behind slow attempts, or the process froze. The lease could end during the attempt.
            self.settler.release([claim])
        elif profile.endpoint.state is not EndpointState.ACTIVE:  # paused or disabled after the claim was made
            self.settler.release([claim])
        else:
            return profile
        return None

    def _settle_unattempted(self, claim: Claim, code: str, reason: str, now: Instant) -> None:
        self.settler.put([Settlement.dead(claim, without_attempt(claim, code, reason, now))])

    # -- done ----------------------------------------------------------------------------------------------

    def done(self, replies: Sequence[tuple[Transmission, Reply]]) -> None:
        """Classify replies, pass the decisions to the settler, and fill the slots that became free."""
        finished = self._finish(replies, self._clock.now())
        self._fill_slots()
        if self._claimer.backlogged and any(map(self._frees_slots, finished)):
            self._wake()

    def _finish(self, replies: Sequence[tuple[Transmission, Reply]], now: Instant) -> Iterable[UUID]:
        """Settle attempts and free their slots. Returns their endpoints. An attempt that its transport began although it
        failed to start it has lost its slot and its claim: its reply is ignored."""
        known = [one for one in replies if (one[0].claim.key, one[0].claim.token) in self.in_flight]
        # The claims in the transmissions may have their payloads wrapped in envelopes; these are the original ones.
        claims = [self.in_flight.pop((sent.claim.key, sent.claim.token)) for sent, _ in known]
        self._note_shortage([reply.shortage for _, reply in known if reply.shortage], now)
        decided = (self._settlements(claim, reply) for claim, (_, reply) in zip(claims, known, strict=True))
        self.settler.put([settlement for settlements in decided for settlement in settlements])
        self.buffer.free_bytes(claims)
        finished = Counter(claim.endpoint_id for claim in claims)
        for endpoint_id, count in finished.items():
            self.buffer.finished(endpoint_id, count, now)
        return finished

    def _frees_slots(self, endpoint_id: UUID) -> bool:
        """Whether another round may now claim more: for this endpoint, because its buffer is low, or for another that
        was short of slots, because this one has no claim that takes the free slot."""
        buffer = self.buffer[endpoint_id]
        return buffer.low or (self._claimer.short_of_slots and not buffer.waiting)

    def _settlements(self, claim: Claim, reply: Reply) -> list[Settlement]:
        """The settlement for one reply; an empty list if there is nothing to settle.

        If the attempt never started because no thread or process was free, the claim is released instead. If a bug in
        Doorstep makes the decision fail, the lease runs out and the attempt is settled as lost.
        """
        if reply.shortage:
            self.settler.release([claim])
            return []
        if self.buffer.should_release(claim, reply.started):
            self.settler.release([claim])
            return []
        try:
            return [self._decide(claim, reply)]
        except Exception as error:  # noqa: BLE001  the other replies of the batch must not be lost
            self._note_bug(claim, reply.finished_at, f"a reply could not be classified: {safe_message(error)}")
            return []

    def _note_shortage(self, shortages: Sequence[str], now: Instant) -> None:
        """Claim less after attempts that this process could not make. The claims that wait for a slot are released: the
        same would happen to them, and another worker may be able to make their attempts."""
        if shortages:
            self._capacity.fall_short(shortages[0], len(shortages), len(self.in_flight), now)
            self.settler.release(self.buffer.take_waiting())

    def _note_bug(self, claim: Claim, at: Instant, message: str) -> None:
        """Note a bug in Doorstep that affects one claim. Its lease runs out, and the attempt is settled as lost."""
        ids = {"delivery_id": claim.delivery_id, "correlation_id": claim.correlation_id}
        self._telemetry.note(at, "error", message, **ids)

    def _decide(self, claim: Claim, reply: Reply) -> Settlement:
        endpoint = self._directory.endpoint(claim.endpoint_id)
        outcome = classify(reply, endpoint or _UNKNOWN_ENDPOINT)
        if outcome.succeeded:
            return Settlement.delivered(claim, outcome)
        if endpoint is None:  # deleted during the attempt: a success still counts, a failure is final
            return Settlement.dead(claim, outcome)
        return self._settlement(claim, outcome, endpoint)

    def _settlement(self, claim: Claim, outcome: Outcome, endpoint: Endpoint) -> Settlement:
        return settlement_for(claim, outcome, self._directory.policy(endpoint, claim.event_type), self._random)

    def _release_waiting(self, endpoint_ids: set[UUID]) -> None:
        """Release the waiting claims of endpoints whose circuit has opened, without counting an attempt."""
        for endpoint_id in endpoint_ids:
            self.settler.release(self.buffer.take_waiting(endpoint_id))

    # -- stopping ------------------------------------------------------------------------------------------

    async def drain(self, grace_seconds: float) -> None:
        """Release the claims that were not started, wait for attempts in flight, and write all results.

        The settler must still be running. If the store does not respond, results that are still unwritten are dropped.
        Their leases then run out, and other workers settle these attempts as lost.
        """
        self.intake.close()
        await _until(lambda: not self.intake.offers, _LAST_WRITES_SECONDS)
        self.settler.release(self.buffer.take_waiting())
        await _until(lambda: not self.in_flight, grace_seconds)
        for transport in self._transports.values():
            await transport.close()
        self._abandon(list(self.in_flight.values()))
        await _until(lambda: not self.settler.backlog, _LAST_WRITES_SECONDS)

    def _abandon(self, claims: Sequence[Claim]) -> None:
        """Settle as failed all attempts that outlast the grace period. Their deliveries are due again almost
        immediately.

        A stopping worker creates no dead letters: if no retries are left, the claim is released instead.
        """
        now = self._clock.now()
        for claim in claims:
            endpoint = self._directory.endpoint(claim.endpoint_id)
            outcome = lost_worker(claim, now)
            settlement = endpoint and self._settlement(claim, outcome, endpoint)
            if settlement and settlement.due_at is not None:
                self.settler.put([settlement])
            else:
                self.settler.release([claim])
        self.in_flight.clear()


async def _until(condition: Callable[[], bool], seconds_max: float) -> None:
    waited = 0.0
    while not condition() and waited < seconds_max:
        await asyncio.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS


_UNKNOWN_ENDPOINT = Endpoint(
    endpoint_id=UUID(int=0), org_id=UUID(int=0), name="", created_at=0, destination=HandlerDestination("")
)
