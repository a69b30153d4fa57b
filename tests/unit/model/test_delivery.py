"""The state transitions of deliveries, and the values derived from a delivery."""

from __future__ import annotations

from itertools import product

import pytest

from doorstep.model.action import ACTS_ON, ActionKind
from doorstep.model.delivery import (
    DEAD_STATES,
    DONE_STATES,
    OPEN_STATES,
    TRANSITION_TABLE,
    TRANSITIONS,
    Delivery,
    DeliveryState,
    IllegalTransition,
    check_transition,
)
from tests.support.builders import NOW, new_id
from tests.support.matrix import each_case

S = DeliveryState


def a_delivery(**changes: object) -> Delivery:
    fields: dict[str, object] = {name: new_id() for name in ("delivery_id", "event_id", "endpoint_id", "org_id")}
    fields |= {"event_type": "user.created", "state": S.PENDING, "due_at": NOW, "created_at": NOW}
    return Delivery(**fields | changes)  # type: ignore[arg-type]


@each_case(("source", "target"), list(product(S, S)))
def test_exactly_the_pairs_of_the_table_are_allowed(source: DeliveryState, target: DeliveryState) -> None:
    if (source, target) in TRANSITIONS:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalTransition, match=f"from {source} to {target}"):
            check_transition(source, target)


def test_the_table_names_each_pair_once_and_says_who_and_why() -> None:
    pairs = [(row.source, row.target) for row in TRANSITION_TABLE]
    assert len(pairs) == len(set(pairs))
    assert all(row.by in ("worker", "operator", "cleaner") and row.why for row in TRANSITION_TABLE)


def test_delivered_resolved_and_cancelled_are_final() -> None:
    left = {source for source, _ in TRANSITIONS}
    assert set(S) - left == {S.DELIVERED, S.RESOLVED, S.CANCELLED}


def test_a_dead_letter_leaves_its_state_only_by_an_operator_or_the_cleaner() -> None:
    assert {row.by for row in TRANSITION_TABLE if row.source in DEAD_STATES} == {"operator", "cleaner"}


def test_every_state_can_be_reached() -> None:
    reached, new = {S.PENDING}, {S.PENDING}
    while new:
        new = {target for source, target in TRANSITIONS if source in new} - reached
        reached |= new
    assert reached == set(S)


def test_open_dead_done_and_cancelled_share_out_all_states() -> None:
    groups = [OPEN_STATES, DEAD_STATES, DONE_STATES, {S.CANCELLED}]
    assert sorted(state for group in groups for state in group) == sorted(S)


def test_every_act_leads_along_an_allowed_transition() -> None:
    targets = {
        ActionKind.SKIP: S.DEAD,
        ActionKind.RESOLVE: S.RESOLVED,
        ActionKind.CANCEL: S.CANCELLED,
        ActionKind.RETRY: S.PENDING,
    }
    for kind, target in targets.items():
        for source in ACTS_ON[kind] - {target}:
            check_transition(source, target)


def test_the_next_retry_is_known_once_something_has_failed() -> None:
    assert a_delivery(attempt=0).next_retry_at is None
    assert a_delivery(attempt=1, due_at=NOW + 5).next_retry_at == NOW + 5


def test_the_end_of_a_lease_is_not_a_next_retry() -> None:
    assert a_delivery(attempt=1, state=S.IN_PROGRESS).next_retry_at is None


def test_a_delivery_that_needed_a_retry_says_which() -> None:
    assert a_delivery(state=S.DELIVERED, attempt=3, retry_attempts=2).remark == "Succeeded on retry attempt 2"
    assert a_delivery(state=S.DELIVERED, attempt=1).remark is None
    assert a_delivery(state=S.DEAD, retry_attempts=2, reason="gone").remark == "gone"
