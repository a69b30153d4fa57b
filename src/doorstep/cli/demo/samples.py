"""The receivers of the demo: one of each kind that people meet, with policies short enough to watch."""

from __future__ import annotations

from typing import Any, NamedTuple

from doorstep.cli.receiver import Behaviour
from doorstep.model.endpoint import CircuitRules
from doorstep.model.retry_policy import RetryPolicy

_HARDLY_EVER = CircuitRules(failures_max=1_000)


class Sample(NamedTuple):
    """One endpoint, and how its receiver behaves."""

    name: str
    event_types: tuple[str, ...]
    behaviour: Behaviour | None
    """None: nothing listens there."""
    policy: RetryPolicy
    circuit: CircuitRules = _HARDLY_EVER

    @property
    def path(self) -> str:
        return f"/{self.name}"

    def fields(self, url: str) -> dict[str, Any]:
        """What an endpoint is created or changed with."""
        return {
            "name": self.name,
            "url": url,
            "event_types": self.event_types,
            "policy": self.policy,
            "circuit": self.circuit,
        }


SAMPLES = (
    Sample("healthy-shop", ("order.*", "user.*"), Behaviour(), RetryPolicy((2, 10, 60))),
    Sample("flaky-crm", ("user.*", "order.paid"), Behaviour(503, fail_share=0.4), RetryPolicy((3, 6, 12))),
    Sample("slow-warehouse", ("order.shipped",), Behaviour(slow_seconds=2.5), RetryPolicy((5, 15))),
    # While its circuit is open, one delivery goes through as a probe every few seconds: with a single retry each, that
    # makes a dead letter of it.
    Sample("dead-erp", ("stock.*",), None, RetryPolicy((2,)), CircuitRules(failures_max=5, open_seconds=6)),
    Sample("strict-accounting", ("invoice.*",), Behaviour(422, fail_share=0.3), RetryPolicy((5, 30))),
    Sample("locked-partner", ("partner.*",), Behaviour(401, fail_share=1.0), RetryPolicy((5, 30))),
)

BEHAVIOURS = {sample.path: sample.behaviour for sample in SAMPLES if sample.behaviour is not None}


def behaviour_at(path: str) -> Behaviour:
    """How the receiver of this path behaves; a path that nobody has is not found."""
    return BEHAVIOURS.get(path, Behaviour(404, fail_share=1.0))
