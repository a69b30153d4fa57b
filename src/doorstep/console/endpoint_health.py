"""When an endpoint needs somebody: the overview counts those, and the list of endpoints shows them, the worst first."""

from __future__ import annotations

from typing import NamedTuple

from doorstep.console.formatting import plural, share
from doorstep.console.request import PageRequest
from doorstep.model.circuit import CircuitState
from doorstep.model.endpoint import EndpointState
from doorstep.model.rollup import Figures
from doorstep.operations.stats import Health
from doorstep.policy.reports import WINDOWS, success_rate

LATELY = WINDOWS["24h"]
"""How an endpoint must have fared over to be judged."""
JUDGED_MAX = 200
"""Endpoints that are judged: those that are cut off first, then those that lost something last."""
_FAILING_BELOW = 0.95
"""As the built-in alert has it: more than 5 % failed for good."""
_RANK = {"disabled": 0, "open": 1, "half_open": 2, "failing": 3, "": 4}


class Trouble(NamedTuple):
    """What is wrong with an endpoint, the worst of it; no kind where it needs nobody."""

    kind: str = ""
    words: str = ""

    @property
    def rank(self) -> int:
        return _RANK[self.kind]


class Troubled(NamedTuple):
    """The endpoints that need somebody, the worst first."""

    healths: list[Health]
    complete: bool
    """Whether all were judged that may be among them."""


async def troubled(visit: PageRequest) -> Troubled:
    """Of any number of endpoints: the store knows which of them may be in trouble."""
    judged = await visit.doorstep.components.reporter.ailing(visit.org_id, LATELY, JUDGED_MAX)
    needy = [one for one in judged if trouble_of(one).kind]
    return Troubled(sorted(needy, key=by_trouble), complete=len(judged) < JUDGED_MAX)


def by_trouble(health: Health) -> tuple[int, int]:
    """Where it stands among others: by its trouble, then by its creation."""
    return trouble_of(health).rank, health.endpoint.endpoint_id.int


def is_losing(recent: Figures) -> bool:
    """Whether too much of what ended has failed for good."""
    return recent.dead > 0 and (success_rate(recent) or 0) < _FAILING_BELOW


def trouble_of(health: Health) -> Trouble:
    """It is cut off, or loses what it was to get. A pause is somebody's own doing, and for a few failures there are
    retries."""
    endpoint, circuit, recent = health.endpoint, health.circuit, health.recent
    in_a_row = f"{plural(circuit.failures, 'failure')} in a row"
    if endpoint.state is EndpointState.DISABLED:
        return Trouble("disabled", endpoint.state_reason or "disabled")
    if circuit.state is not CircuitState.CLOSED:
        return Trouble(circuit.state.value, in_a_row)
    if is_losing(recent):
        return Trouble("failing", f"{share(recent.dead, recent.succeeded + recent.dead)} failed for good")
    return Trouble("", in_a_row if circuit.failures else "")
