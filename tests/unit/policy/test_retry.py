"""When a failed delivery is retried (R2), and when its retries end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Instant, seconds
from doorstep.errors import InvalidInput
from doorstep.model.attempt import Category, Code, Outcome
from doorstep.model.claim import Claim
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.policy.classification import lost_worker
from doorstep.policy.retry import (
    BUILT_IN,
    Random,
    capped,
    named,
    next_due_at,
    policy_for,
    settlement_for,
    standard_policy,
)
from doorstep.schemas.endpoints import POLICY_NAMES
from tests.support.builders import NOW, a_claim, an_endpoint, an_org, failure, new_id, refusal, success
from tests.support.matrix import each_case

_EXACT = RetryPolicy((60, 300, 900), jitter=0)


def always(chance: float) -> Random:
    return lambda: chance


half = always(0.5)


@each_case(
    ("name", "delays"),
    [
        ("standard", (5, 30, 120, 600, 3600, 21600, 86400)),
        ("triggers", (60, 300, 900)),
        ("quick", (5, 30, 300)),
        ("exponential", (5, 30, 300)),
        ("immediate", (5, 5, 5)),
        ("carrier", (300, 600, 1200)),
        ("pipeline", (5, 30)),
        ("patient", (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)),
        ("manual", ()),
    ],
)
def test_the_built_in_policies_are_those_of_the_table(name: str, delays: tuple[float, ...]) -> None:
    policy = named(name)
    assert (policy.delays, policy.deadline_seconds) == (delays, None)
    assert policy.jitter == (0 if name == "triggers" else 0.1)
    assert policy.retry_on_recovery == (name in ("standard", "patient"))
    assert policy.manual == (name == "manual")
    assert set(BUILT_IN) == set(POLICY_NAMES)


def test_other_delays_for_the_policy_standard_are_not_brought_forward() -> None:
    assert standard_policy(None) is BUILT_IN["standard"]
    assert standard_policy((60.0, 300.0)) == RetryPolicy((60.0, 300.0), name="standard", retry_on_recovery=False)


def test_an_unknown_policy_is_refused_by_naming_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="there is no policy 'eager'; known are standard, triggers, quick"):
        named("eager")


@each_case(("used", "delay"), [(0, 60), (1, 300), (2, 900)])
def test_each_retry_waits_for_its_own_delay_after_the_end_of_the_try(used: int, delay: int) -> None:
    claim = a_claim(retry_attempts=used)
    assert next_due_at(claim, failure(NOW), _EXACT, half) == NOW + delay * SECOND


def test_three_delays_mean_four_attempts_in_all() -> None:
    assert next_due_at(a_claim(retry_attempts=3), failure(NOW), _EXACT, half) is None


def test_a_policy_without_delays_is_never_retried_by_the_machine() -> None:
    assert next_due_at(a_claim(), failure(NOW), named("manual"), half) is None


def test_pipeline_retries_twice_with_a_pause_and_gives_up_after_three_attempts() -> None:
    dues = [next_due_at(a_claim(retry_attempts=used), failure(NOW), named("pipeline"), half) for used in range(3)]
    assert dues == [NOW + 5 * SECOND, NOW + 30 * SECOND, None]


# -- manual ------------------------------------------------------------------------------------------------


def test_manual_leaves_a_failure_waiting_for_an_operator() -> None:
    for used in (0, 3):
        settlement = settlement_for(a_claim(retry_attempts=used), failure(NOW), named("manual"), half)
        assert (settlement.state, settlement.due_at) == (DeliveryState.PENDING, None)
    refused = settlement_for(a_claim(), refusal(NOW), named("manual"), half)
    assert refused.state is DeliveryState.DEAD


def test_a_policy_can_wait_for_an_operator_when_its_retries_are_used_up() -> None:
    policy = RetryPolicy((60,), manual=True)
    first, last = (settlement_for(a_claim(retry_attempts=used), failure(NOW), policy, half) for used in (0, 1))
    assert first.due_at is not None and (last.state, last.due_at) == (DeliveryState.PENDING, None)


# -- recovery ----------------------------------------------------------------------------------------------

_RECOVERING = RetryPolicy((60, 300), jitter=0, retry_on_recovery=True)
_LATER = NOW + 3_600 * SECOND


def test_a_failure_under_such_a_policy_waits_for_its_retry_and_for_a_recovery() -> None:
    assert settlement_for(a_claim(was_due_at=NOW), failure(NOW), _RECOVERING, half).on_recovery
    assert not settlement_for(a_claim(was_due_at=NOW), failure(NOW), _EXACT, half).on_recovery


@each_case(
    ("claim", "due_at"),
    [
        (a_claim(was_due_at=_LATER, probe=True), _LATER),
        (a_claim(was_due_at=_LATER), _LATER),
        (a_claim(was_due_at=NOW - SECOND, probe=True), NOW),
    ],
)
def test_a_failed_probe_or_early_attempt_restores_the_due_time_and_uses_up_no_retry(
    claim: Claim, due_at: Instant
) -> None:
    settlement = settlement_for(claim, failure(NOW), _RECOVERING, half)
    assert (settlement.due_at, settlement.counted, settlement.on_recovery) == (due_at, False, True)


@each_case(
    ("claim", "outcome", "policy"),
    [
        (a_claim(was_due_at=NOW), failure(NOW), _RECOVERING),
        (a_claim(was_due_at=None, probe=True), failure(NOW), _RECOVERING),
        (a_claim(was_due_at=NOW, probe=True), failure(NOW), _EXACT),
        (a_claim(was_due_at=_LATER), failure(NOW, Code.WORKER_LOST), _RECOVERING),
        (a_claim(was_due_at=NOW, probe=True), replace(failure(NOW), blames_endpoint=False), _RECOVERING),
    ],
)
def test_every_other_failure_counts(claim: Claim, outcome: Outcome, policy: RetryPolicy) -> None:
    """A due attempt, an operator's retry, another policy, a lost worker, a payload that is to blame."""
    settlement = settlement_for(claim, outcome, policy, half)
    assert settlement.counted and settlement.due_at != claim.was_due_at


def test_a_probe_that_is_refused_is_a_dead_letter_and_one_past_its_deadline_too() -> None:
    probe = a_claim(was_due_at=NOW, probe=True)
    assert settlement_for(probe, refusal(NOW), _RECOVERING, half).state is DeliveryState.DEAD
    short = replace(_RECOVERING, deadline_seconds=10)
    late = settlement_for(probe, failure(NOW + 11 * SECOND), short, half)
    assert late.state is DeliveryState.DEAD


def test_attempts_that_used_up_no_retry_do_not_look_like_an_operators_retry() -> None:
    assert not a_claim(attempt=4, retry_attempts=1, uncounted=2).revived
    assert a_claim(attempt=4, retry_attempts=1, uncounted=1).revived


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 30 * 86_400), st.floats(0, 1))
def test_jitter_stays_within_its_share_of_the_delay(chance: float, delay: float, jitter: float) -> None:
    due_at = next_due_at(a_claim(), failure(NOW), RetryPolicy((delay,), jitter), lambda: chance)
    assert due_at is not None
    assert seconds(delay * (1 - jitter)) - 1 <= due_at - NOW <= seconds(delay * (1 + jitter)) + 1


def test_jitter_spreads_over_both_sides_of_the_delay() -> None:
    dues = [next_due_at(a_claim(), failure(NOW), named("carrier"), always(c)) for c in (0.0, 0.5, 0.999_999)]
    assert [round((due - NOW) / SECOND) for due in dues if due] == [270, 300, 330]


def test_a_permanent_failure_is_not_retried() -> None:
    assert next_due_at(a_claim(), refusal(NOW), _EXACT, half) is None


# -- Retry-After -------------------------------------------------------------------------------------------


def asked_for(retry_after: float) -> Instant:
    outcome = Outcome(
        reply=failure(NOW).reply, category=Category.TRANSIENT, code=Code.RATE_LIMIT, retry_after_seconds=retry_after
    )
    due_at = next_due_at(a_claim(), outcome, _EXACT, half)
    assert due_at is not None
    return due_at - NOW


def test_retry_after_replaces_the_delay_of_the_policy() -> None:
    assert asked_for(7) == 7 * SECOND


@each_case(("asked", "given"), [(-5, 1), (0, 1), (float("-inf"), 1), (1e12, 86_400), (float("inf"), 86_400)])
def test_retry_after_is_clamped_to_a_second_and_a_day(asked: float, given: float) -> None:
    assert asked_for(asked) == given * SECOND


def test_a_retry_after_that_is_no_number_means_the_shortest_pause() -> None:
    assert asked_for(float("nan")) == SECOND


def test_jitter_never_makes_a_try_earlier_than_the_receiver_asked() -> None:
    outcome = Outcome(reply=failure(NOW).reply, category=Category.TRANSIENT, code="X", retry_after_seconds=100)
    dues = [next_due_at(a_claim(), outcome, named("standard"), always(c)) for c in (0.0, 0.999_999)]
    assert [round((due - NOW) / SECOND) for due in dues if due] == [100, 110]


# -- when retries end --------------------------------------------------------------------------------------


def test_the_deadline_of_what_was_sent_for_later_counts_from_then() -> None:
    policy = RetryPolicy((60, 60), jitter=0, deadline_seconds=100)
    for sent_before_seconds in (0, 7 * 86_400):
        claim = a_claim(accepted_at=NOW - sent_before_seconds * SECOND, deliver_at=NOW)
        for after_seconds, tried_again in ((0, True), (40, True), (41, False)):
            outcome = failure(NOW + after_seconds * SECOND)
            assert (next_due_at(claim, outcome, policy, half) is not None) == tried_again
    early = a_claim(accepted_at=NOW, deliver_at=NOW - 90 * SECOND)
    assert next_due_at(early, failure(NOW), policy, half) is not None, "it was not owed before it was accepted"


def test_no_retry_starts_after_the_deadline_of_the_policy() -> None:
    policy = RetryPolicy((60, 60), jitter=0, deadline_seconds=100)
    assert next_due_at(a_claim(accepted_at=NOW - 40 * SECOND), failure(NOW), policy, half) == NOW + 60 * SECOND
    assert next_due_at(a_claim(accepted_at=NOW - 41 * SECOND), failure(NOW), policy, half) is None


def test_what_a_person_took_up_again_after_the_deadline_has_its_retries_but_never_after_it_expired() -> None:
    policy = RetryPolicy((60, 60), jitter=0, deadline_seconds=100)
    revived = a_claim(accepted_at=NOW - 86_400 * SECOND, attempt=4, retry_attempts=1)
    assert next_due_at(revived, failure(NOW), policy, half) == NOW + 60 * SECOND
    assert next_due_at(revived._replace(retry_attempts=2), failure(NOW), policy, half) is None
    assert next_due_at(revived._replace(expires_at=NOW), failure(NOW), policy, half) is None


def test_no_retry_starts_after_the_event_has_expired() -> None:
    assert next_due_at(a_claim(expires_at=NOW + 60 * SECOND), failure(NOW), _EXACT, half) == NOW + 60 * SECOND
    assert next_due_at(a_claim(expires_at=NOW + 59 * SECOND), failure(NOW), _EXACT, half) is None


def test_a_lost_worker_costs_an_attempt_but_next_to_no_further_pause() -> None:
    lost = lost_worker(a_claim(claimed_at=NOW - DAY), NOW)
    dues = [next_due_at(a_claim(), lost, _EXACT, always(c)) for c in (0.0, 0.999_999)]
    assert [round((due - NOW) / SECOND, 2) for due in dues if due] == [0, 0.25]
    assert next_due_at(a_claim(retry_attempts=3), lost, _EXACT, half) is None


def test_what_has_cost_several_workers_in_a_row_is_spread_over_longer_up_to_a_minute() -> None:
    patient = RetryPolicy((1,) * 9, jitter=0)
    spreads = {
        before: [_spread(a_claim(retry_attempts=used, last_code=before), patient) for used in range(5)]
        for before in (Code.WORKER_LOST, Code.TIMEOUT)
    }
    assert spreads == {Code.WORKER_LOST: [0.25, 4, 60, 60, 60], Code.TIMEOUT: [0.25] * 5}


def test_what_was_lost_is_tried_again_before_it_expires_if_that_is_soon() -> None:
    claim = a_claim(retry_attempts=2, last_code=Code.WORKER_LOST, expires_at=NOW + 10 * SECOND)
    assert _spread(claim, _EXACT) == 10
    assert next_due_at(claim._replace(expires_at=NOW - 1), lost_worker(claim, NOW), _EXACT, always(0.999_999)) is None


def _spread(claim: Claim, policy: RetryPolicy) -> float:
    """The longest possible delay, in seconds, before the retry that follows a lost worker."""
    due_at = next_due_at(claim, lost_worker(claim, NOW), policy, always(0.999_999))
    assert due_at is not None
    return round((due_at - NOW) / SECOND, 2)


# -- what is written ---------------------------------------------------------------------------------------


def test_a_settlement_is_delivered_due_again_or_dead() -> None:
    outcomes = (success(NOW), failure(NOW), refusal(NOW))
    settlements = [settlement_for(a_claim(), outcome, _EXACT, half) for outcome in outcomes]
    assert [one.state for one in settlements] == [DeliveryState.DELIVERED, DeliveryState.PENDING, DeliveryState.DEAD]
    assert [one.due_at for one in settlements] == [None, NOW + 60 * SECOND, None]


def test_a_policy_that_was_shortened_meanwhile_never_makes_the_count_exceed_its_maximum() -> None:
    settlement = settlement_for(a_claim(retry_attempts=2, retries_max=9), failure(NOW), _EXACT, half)
    assert settlement.retries_max == 3
    short = RetryPolicy((1,), jitter=0)
    assert settlement_for(a_claim(retry_attempts=2), failure(NOW), short, half).state is DeliveryState.DEAD


# -- which policy ------------------------------------------------------------------------------------------


def test_the_most_specific_policy_wins() -> None:
    default, of_org, of_org_type, of_endpoint, of_type = (RetryPolicy((n,)) for n in range(1, 6))
    org = an_org(policy=of_org, policy_by_event_type={"order.*": of_org_type})
    plain = an_endpoint(org.org_id)
    own = an_endpoint(org.org_id, policy=of_endpoint)
    typed = an_endpoint(org.org_id, policy=of_endpoint, policy_by_event_type={"order.paid": of_type})
    assert policy_for(plain, None, "order.paid", default) is default
    assert policy_for(plain, an_org(), "order.paid", default) is default
    assert policy_for(plain, org, "user.created", default) is of_org
    assert policy_for(plain, org, "order.paid", default) is of_org_type
    assert policy_for(own, org, "order.paid", default) is of_endpoint
    assert policy_for(typed, org, "order.paid", default) is of_type
    assert policy_for(typed, org, "order.placed", default) is of_endpoint


def test_an_empty_policy_is_a_policy_not_the_absence_of_one() -> None:
    manual = named("manual")
    assert policy_for(an_endpoint(new_id(), policy=manual), None, "x", named("standard")) is manual


@each_case(("allowed", "kept"), [(0, ()), (2, (60, 300)), (3, (60, 300, 900)), (20, (60, 300, 900))])
def test_no_policy_retries_more_often_than_the_installation_allows(allowed: int, kept: tuple[float, ...]) -> None:
    policy = capped(RetryPolicy((60, 300, 900), 0.2, 50, "mine"), allowed)
    assert policy == RetryPolicy(kept, 0.2, 50, "mine")
