"""The rule of recovery: after an outage of D seconds that opened the circuit, everything owed is tried again within
1 s + D/4, plus one attempt timeout if the receiver hung, plus the time that the backlog takes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from doorstep.clock import SECOND, Instant, seconds
from doorstep.model.delivery import OPEN_STATES
from doorstep.model.endpoint import CircuitState, Endpoint
from tests.simulation.scenario import TUNING
from tests.simulation.story import Story
from tests.simulation.trace import short

_CALM: Instant = 20 * SECOND
"""If something else goes wrong less than this before the end of an outage, the rule does not apply: a lost probe, for
example, is repeated only after its lease."""
_BACKLOG_SECONDS, _BACKLOG_SECONDS_EACH = 1.5, 0.1
"""A calm receiver answers within 60 ms, and a call of the store takes up to 250 ms."""


def breaches_of_recovery(story: Story) -> Iterator[str]:
    for endpoint in judged_endpoints(story):
        yield from _breaches_at(story, endpoint)


def judged_endpoints(story: Story) -> list[Endpoint]:
    """The endpoints to which the rule applies."""
    if story.outage is None or _last_fault_at(story) > story.healed_at - _CALM:
        return []
    recovering = [one for one in story.endpoints.values() if one.policy and one.policy.retry_on_recovery]
    return [one for one in recovering if _opened(story, one)]


def recovery_seconds(story: Story, endpoint: Endpoint) -> float:
    """How long after the end of the outage the last owed delivery was tried; infinite if one never was."""
    tried, owed = _tried(story), owed_at_the_end(story, endpoint)
    return max(((tried[one] - story.healed_at) / SECOND if one in tried else float("inf") for one in owed), default=0.0)


def recovery_seconds_max(story: Story, endpoint: Endpoint) -> float:
    assert story.outage is not None
    pause = 1 + (story.healed_at - story.outage.at) / SECOND / 4 + (TUNING.timeout_seconds if story.outage.hangs else 0)
    return pause + _BACKLOG_SECONDS + _BACKLOG_SECONDS_EACH * len(owed_at_the_end(story, endpoint))


def owed_at_the_end(story: Story, endpoint: Endpoint) -> list[UUID]:
    """The deliveries that were open when the receivers came back. None of them had an expiry, which may have passed."""
    latest = {step.delivery_id: step.after for step in story.steps if step.at <= story.healed_at and step.after}
    return [
        one
        for one, then in latest.items()
        if then.endpoint_id == endpoint.endpoint_id
        and then.state in OPEN_STATES
        and story.events[then.event_id].event.expires_at is None
    ]


def _breaches_at(story: Story, endpoint: Endpoint) -> Iterator[str]:
    tried, most = _tried(story), recovery_seconds_max(story, endpoint)
    for one in owed_at_the_end(story, endpoint):
        if one not in tried or tried[one] > story.healed_at + seconds(most):
            yield f"delivery {short(one)} was not tried again within {most:.1f} s after an outage"


def _tried(story: Story) -> dict[UUID, Instant]:
    """When each delivery was first tried after the outage."""
    tried: dict[UUID, Instant] = {}
    for request in story.requests:
        if request.arrived_at is not None and request.arrived_at >= story.healed_at:
            tried.setdefault(request.delivery_id, request.arrived_at)
    return tried


def _opened(story: Story, endpoint: Endpoint) -> bool:
    return any(
        fact.endpoint_id == endpoint.endpoint_id and fact.new_state == CircuitState.OPEN and at <= story.healed_at
        for at, fact in story.transitions
    )


def _last_fault_at(story: Story) -> Instant:
    ends = [one.until or one.at for one in story.disturbances] + [at for at, *_ in story.store_failures]
    return max(ends, default=0)
