"""The rules of claiming for one delivery: one holder at a time, protected by its token; every claim counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from doorstep.model.delivery import DEAD_STATES, DeliveryState
from doorstep.model.endpoint import Endpoint
from tests.simulation.journal import Step
from tests.simulation.scenario import TUNING


def breaches_of_claims(steps: Sequence[Step], endpoint: Endpoint) -> Iterator[str]:
    """Yield everything that the store methods did to one delivery against the rules."""
    ledger = _Ledger(len((endpoint.policy or TUNING.policy).delays) + 1)
    for step in steps:
        rule = _RULES.get(step.verb)
        if rule is not None:
            yield from rule(ledger, step)


class _Ledger:
    """The expected state of a delivery, computed from the steps alone."""

    def __init__(self, attempts_max: int) -> None:
        self.attempts_max = attempts_max
        self.holder: Step | None = None
        self.newest_token = 0
        self.counted = 0
        self.counted_in_round = 0

    def claim(self, step: Step) -> Iterator[str]:
        assert step.claim is not None
        if self.holder is not None:
            yield f"{step.by} claimed it while {self.holder.by} held token {self.holder.token}"
        if step.claim.token <= self.newest_token:
            yield f"token {step.claim.token} does not grow (the newest was {self.newest_token})"
        self.holder, self.newest_token = step, step.claim.token
        self.counted += 1
        self.counted_in_round += 1
        if step.claim.attempt != self.counted:
            yield f"claim {step.token} is attempt {step.claim.attempt}, but {self.counted - 1} were made before it"
        if self.counted_in_round > self.attempts_max:
            yield f"{self.counted_in_round} attempts in one round, the policy allows {self.attempts_max}"

    def settle(self, step: Step) -> Iterator[str]:
        yield from self._fence(step)
        if not step.late and step.settlement is not None:
            claim = step.settlement.claim
            if step.by != claim.worker and step.now < claim.lease_until:
                yield f"{step.by} settled claim {claim.token} of {claim.worker} before its lease had ended"

    def release(self, step: Step) -> Iterator[str]:
        yield from self._fence(step)
        if not step.late:
            self.counted -= 1
            self.counted_in_round -= 1

    def _fence(self, step: Step) -> Iterator[str]:
        holds = self.holder is not None and self.holder.token == step.token
        if step.late and step.before != step.after:
            yield f"{step.verb} with token {step.token} was late, but changed the delivery"
        if step.late and holds:
            yield f"{step.verb} with token {step.token} was refused, but that is the newest claim"
        if not step.late and not holds:
            yield f"{step.by} could {step.verb} with token {step.token}, which no longer holds the delivery"
        if not step.late:
            self.holder = None

    def act(self, step: Step) -> Iterator[str]:
        assert step.before is not None and step.after is not None
        if self.holder is not None:
            yield f"an operator changed it while {self.holder.by} held it"
        if step.before.state in DEAD_STATES and step.after.state is DeliveryState.PENDING:
            self.counted_in_round = 0

    def renew(self, step: Step) -> Iterator[str]:
        if self.holder is None or self.holder.by != step.by:
            yield f"{step.by} renewed a lease that it did not hold"
        yield from self.shift(step)

    def shift(self, step: Step) -> Iterator[str]:
        assert step.before is not None and step.after is not None
        times = {name: getattr(step.after, name) for name in ("due_at", "claimed_at", "last_attempt_at")}
        if replace(step.before, **times) != step.after:
            yield f"{step.verb} changed more than times"

    def dead_letter(self, step: Step) -> Iterator[str]:
        if self.holder is not None:
            yield f"it was moved to the dead letters while {self.holder.by} held it"


_RULES = {
    "claim": _Ledger.claim,
    "settle": _Ledger.settle,
    "release": _Ledger.release,
    "act": _Ledger.act,
    "renew_leases": _Ledger.renew,
    "shift_waits": _Ledger.shift,
    "dead_letter_waiting": _Ledger.dead_letter,
}
