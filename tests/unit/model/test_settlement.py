"""Settlements are built by named constructors, so that the state and due time always match."""

from __future__ import annotations

from doorstep.model.claim import Settlement
from doorstep.model.delivery import TRANSITIONS, DeliveryState
from tests.support.builders import NOW, a_claim, failure, refusal, success


def test_only_a_retry_has_a_due_time() -> None:
    claim = a_claim()
    assert Settlement.delivered(claim, success(NOW)).due_at is None
    assert Settlement.dead(claim, refusal(NOW)).due_at is None
    assert Settlement.retry(claim, failure(NOW), NOW + 9, 3).due_at == NOW + 9


def test_every_settlement_is_an_allowed_transition_of_a_delivery_in_progress() -> None:
    claim = a_claim()
    made = [
        Settlement.delivered(claim, success(NOW)),
        Settlement.dead(claim, refusal(NOW)),
        Settlement.retry(claim, failure(NOW), NOW, 3),
    ]
    for settlement in made:
        assert (DeliveryState.IN_PROGRESS, settlement.state) in TRANSITIONS


def test_only_a_retry_changes_how_many_retries_there_may_be() -> None:
    claim = a_claim()
    assert Settlement.delivered(claim, success(NOW)).retries_max == claim.retries_max
    assert Settlement.dead(claim, refusal(NOW)).retries_max == claim.retries_max
    assert Settlement.retry(claim, failure(NOW), NOW, 7).retries_max == 7


def test_exactly_the_outcomes_with_a_category_failed() -> None:
    assert success(NOW).succeeded
    assert not failure(NOW).succeeded
    assert not refusal(NOW).succeeded
