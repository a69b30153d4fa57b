"""The checker: a pure function that takes the story of a run and returns every breach of a promise.

Each promise is one function, named in the words of promises.md, and yields one sentence per breach.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from uuid import UUID

from doorstep.clock import SECOND, seconds
from doorstep.model.attempt import Code
from doorstep.model.delivery import DEAD_STATES, DONE_STATES, OPEN_STATES, TRANSITIONS, DeliveryState
from doorstep.model.event import status_of
from tests.simulation.claim_rules import breaches_of_claims
from tests.simulation.journal import Step
from tests.simulation.network import Request
from tests.simulation.order_rules import breaches_of_order
from tests.simulation.recovery_rules import breaches_of_recovery
from tests.simulation.story import Life, Story
from tests.simulation.trace import short

_FINAL = frozenset({DeliveryState.DELIVERED, DeliveryState.RESOLVED, DeliveryState.CANCELLED})


_REFUSALS_MAX = 6
"""About how often a worker retries to write its results before their leases end."""


def check(story: Story) -> dict[str, list[str]]:
    """The broken promises, each with its breaches; empty if every promise was kept."""
    found = {promise.__name__: list(promise(story)) for promise in PROMISES}
    return {name: breaches for name, breaches in found.items() if breaches}


def our_code_does_not_fail(story: Story) -> Iterator[str]:
    yield from story.troubles


def nothing_acknowledged_is_lost(story: Story) -> Iterator[str]:
    owed: defaultdict[UUID, int] = defaultdict(int)
    for life in story.lives.values():
        owed[life.delivery.event_id] += 1
    for sending in story.sendings:
        if sending.receipt is not None:
            kept = story.events.get(sending.receipt.event_id)
            if kept is None or kept.event.payload != sending.draft.payload:
                yield f"event {sending.draft.correlation_id} was acknowledged and is not kept as it was sent"
            elif owed[sending.receipt.event_id] != sending.receipt.deliveries:
                yield f"event {sending.draft.correlation_id} was promised {sending.receipt.deliveries} deliveries"


def everything_ends(story: Story) -> Iterator[str]:
    for delivery_id, life in story.lives.items():
        if life.delivery.state in OPEN_STATES:
            yield f"delivery {short(delivery_id)} is still {life.delivery.state} after everything was healed"


def nothing_is_invented(story: Story) -> Iterator[str]:
    sent = {sending.draft.payload for sending in story.sendings}
    for request in story.requests:
        event = story.events.get(request.event_id)
        if event is None or request.body != event.event.payload or request.body not in sent:
            yield f"a request for event {short(request.event_id)} carries bytes that nobody sent"
        if request.target.startswith("http") and f"webhook-id: {request.event_id}" not in request.headers:
            yield f"a request for event {short(request.event_id)} has another webhook-id"
        if request.delivery_id in story.lives and request.target != _target(story, request):
            yield f"a request for delivery {short(request.delivery_id)} went to {request.target}"


def _target(story: Story, request: Request) -> str | None:
    endpoint = story.endpoints[story.lives[request.delivery_id].delivery.endpoint_id]
    return endpoint.url or endpoint.handler


def one_sending_is_one_event(story: Story) -> Iterator[str]:
    """Every draft has a unique payload. If a draft is repeated with its key, it must not create a second event."""
    events: defaultdict[bytes, set[UUID]] = defaultdict(set)
    for event_id, view in story.events.items():
        events[view.event.payload].add(event_id)
    for sending in story.sendings:
        if sending.receipt is not None:
            events[sending.draft.payload].add(sending.receipt.event_id)
    for payload, ids in events.items():
        if len(ids) > 1:
            yield f"{payload!r} became {len(ids)} events"


def claims_are_fenced_and_counted(story: Story) -> Iterator[str]:
    for delivery_id, steps in _by_delivery(story).items():
        endpoint_id = story.lives[delivery_id].delivery.endpoint_id
        for breach in breaches_of_claims(steps, story.endpoints[endpoint_id]):
            yield f"delivery {short(delivery_id)}: {breach}"


def final_states_are_final(story: Story) -> Iterator[str]:
    for step in story.steps:
        if step.before is None or step.before == step.after:
            continue
        if step.before.state in _FINAL:
            yield f"delivery {short(step.delivery_id)} was {step.before.state} and was changed by {step.verb}"
        if step.before.state is DeliveryState.DEAD and step.verb != "act":
            yield f"delivery {short(step.delivery_id)} was dead and was changed by {step.verb}"


def every_request_has_a_row(story: Story) -> Iterator[str]:
    cut_off = {(step.delivery_id, step.token) for step in story.steps if step.verb == "release" and not step.late}
    for request in story.requests:
        life = story.lives.get(request.delivery_id)
        rows = life.attempts if life else []
        logged = any(row.number == request.attempt and row.worker == request.worker for row in rows)
        # A stopping worker may hand back an attempt that outlasted its grace period, as if it had not been made.
        if not logged and (request.delivery_id, request.token) not in cut_off:
            yield f"request #{request.attempt} of delivery {short(request.delivery_id)} is not in the attempt log"


def the_attempt_log_is_whole(story: Story) -> Iterator[str]:
    for delivery_id, life in story.lives.items():
        numbers = [row.number for row in life.attempts if not row.late]
        if life.delivery.state not in OPEN_STATES and numbers != list(range(1, life.delivery.attempt + 1)):
            yield f"delivery {short(delivery_id)} had {life.delivery.attempt} attempts, its log has {numbers}"


def late_results_are_kept(story: Story) -> Iterator[str]:
    late = Counter(step.delivery_id for step in story.steps if step.verb == "settle" and step.late)
    for delivery_id, life in story.lives.items():
        rows = sum(row.late for row in life.attempts)
        if rows != late[delivery_id]:
            yield f"delivery {short(delivery_id)} had {late[delivery_id]} late results, its log has {rows}"


def history_is_a_chain(story: Story) -> Iterator[str]:
    for delivery_id, life in story.lives.items():
        states = [None, *(line.new_state for line in life.history)]
        links = list(pairwise(states))
        told = [(line.old_state, line.new_state) for line in life.history]
        legal = links[0] == (None, DeliveryState.PENDING) and all(link in TRANSITIONS for link in links[1:])
        if told != links or not legal or states[-1] is not life.delivery.state:
            yield f"delivery {short(delivery_id)} is {life.delivery.state}, but its history reads {told}"


def figures_agree_with_the_rows(story: Story) -> Iterator[str]:
    yield from story.miscounted


def statuses_add_up(story: Story) -> Iterator[str]:
    lives: defaultdict[UUID, list[Life]] = defaultdict(list)
    for life in story.lives.values():
        lives[life.delivery.event_id].append(life)
    for event_id, owed in lives.items():
        states = [life.delivery.state for life in owed]
        status = status_of(
            open_count=sum(state in OPEN_STATES for state in states),
            dead_count=sum(state in DEAD_STATES for state in states),
            done_count=sum(state in DONE_STATES for state in states),
            picked_up=any(life.history[1:] for life in owed),
        )
        if story.events[event_id].status is not status:
            yield f"event {short(event_id)} is {story.events[event_id].status}, its deliveries add up to {status}"


def no_try_outlasts_its_lease(story: Story) -> Iterator[str]:
    for request in story.requests:
        if request.begun_at + seconds(request.timeout_seconds) > request.lease_until:
            over = (request.begun_at + seconds(request.timeout_seconds) - request.lease_until) / SECOND
            yield f"{request.worker} began a try of {short(request.delivery_id)} that may end {over:.3f} s after its lease"


def nobody_is_lost_without_cause(story: Story) -> Iterator[str]:
    """A claim counts as lost only if its worker was killed, was frozen, or could not reach the store."""
    claimed = {(step.delivery_id, step.token): step for step in story.steps if step.verb == "claim"}
    for step in story.steps:
        if _tells_of_a_lost_worker(step):
            claim = claimed[step.delivery_id, step.token]
            if not _has_cause(story, claim, step):
                yield f"{claim.by} was fine, but its claim {step.token} of {short(step.delivery_id)} was never settled"


def _tells_of_a_lost_worker(step: Step) -> bool:
    settlement = step.settlement
    return (
        settlement is not None
        and not step.late
        and settlement.outcome.code == Code.WORKER_LOST
        and step.by != settlement.claim.worker
    )


def _has_cause(story: Story, claim: Step, lost: Step) -> bool:
    if not claim.heard:
        return True
    failures = [
        at
        for at, who, verb in story.store_failures
        if who == claim.by and verb in ("settle", "release") and claim.at <= at <= lost.at
    ]
    for disturbance in story.disturbances:
        if disturbance.process != claim.by or disturbance.at > lost.at:
            continue
        if disturbance.until is not None and disturbance.until < claim.at:
            continue
        if disturbance.kind != "stopped" or failures:  # a stopping worker hands everything back if it can
            return True
    return len(failures) >= _REFUSALS_MAX


def lost_work_is_picked_up_soon(story: Story) -> Iterator[str]:
    """After healing, lost work is picked up within a second of its lease's end, by the clock of the new worker."""
    if any(one.until is None or one.until > story.healed_at for one in story.disturbances if one.at >= story.healed_at):
        return
    well_since = max([story.healed_at] + [one.until for one in story.disturbances if one.until is not None])
    for step in story.steps:
        if _tells_of_a_lost_worker(step) and step.settlement is not None:
            late = step.now - step.settlement.claim.lease_until
            if step.at - late > well_since + 3 * SECOND and late > 1.5 * SECOND:
                yield f"the lost claim of {short(step.delivery_id)} was picked up {late / SECOND:.3f} s after its lease"


def everything_owed_is_tried_again_soon_after_an_outage(story: Story) -> Iterator[str]:
    yield from breaches_of_recovery(story)


def without_faults_nothing_is_doubled(story: Story) -> Iterator[str]:
    if story.disturbances or story.store_failures:
        return
    seen: set[tuple[UUID, int]] = set()
    for request in story.requests:
        if (request.delivery_id, request.attempt) in seen:
            yield f"attempt {request.attempt} of delivery {short(request.delivery_id)} was made twice without any fault"
        seen.add((request.delivery_id, request.attempt))
    for step in story.steps:
        if step.late:
            yield f"{step.verb} of {short(step.delivery_id)} by {step.by} came too late without any fault"


def the_order_is_kept(story: Story) -> Iterator[str]:
    for (endpoint_id, key), steps in _by_line(story).items():
        for breach in breaches_of_order(steps):
            yield f"endpoint {short(endpoint_id)}, ordering key {key}: {breach}"


def _by_line(story: Story) -> dict[tuple[UUID, str], list[Step]]:
    lines: defaultdict[tuple[UUID, str], list[Step]] = defaultdict(list)
    for step in story.steps:
        if step.after is not None:
            key = story.events[step.after.event_id].event.ordering_key
            if key is not None:
                lines[step.after.endpoint_id, key].append(step)
    return lines


PROMISES: tuple[Callable[[Story], Iterator[str]], ...] = (
    our_code_does_not_fail,
    nothing_acknowledged_is_lost,
    everything_ends,
    nothing_is_invented,
    one_sending_is_one_event,
    claims_are_fenced_and_counted,
    the_order_is_kept,
    final_states_are_final,
    every_request_has_a_row,
    the_attempt_log_is_whole,
    late_results_are_kept,
    history_is_a_chain,
    statuses_add_up,
    figures_agree_with_the_rows,
    no_try_outlasts_its_lease,
    nobody_is_lost_without_cause,
    lost_work_is_picked_up_soon,
    everything_owed_is_tried_again_soon_after_an_outage,
    without_faults_nothing_is_doubled,
)


def _by_delivery(story: Story) -> dict[UUID, list[Step]]:
    steps: defaultdict[UUID, list[Step]] = defaultdict(list)
    for step in story.steps:
        if step.after is not None:
            steps[step.delivery_id].append(step)
    return steps
