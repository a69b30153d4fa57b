"""An event's status is derived from the states of its deliveries."""

from __future__ import annotations

from itertools import product

from doorstep.model.event import EVENT_TRANSITIONS, EventStatus, status_of
from tests.support.matrix import each_case

S = EventStatus


@each_case("picked_up", [False, True])
@each_case(("dead", "done"), list(product([0, 2], [0, 2])))
def test_while_anything_is_open_the_event_is_queued_if_picked_up_and_received_if_not(
    dead: int, done: int, picked_up: bool
) -> None:
    status = status_of(open_count=1, dead_count=dead, done_count=done, picked_up=picked_up)
    assert status is (S.QUEUED if picked_up else S.RECEIVED)


@each_case("picked_up", [False, True])
@each_case(("dead", "done", "status"), [(0, 1, S.DELIVERED), (1, 0, S.FAILED), (1, 9, S.FAILED), (0, 0, S.FAILED)])
def test_when_nothing_is_open_one_dead_delivery_fails_the_event_and_so_does_none_done(
    dead: int, done: int, status: EventStatus, picked_up: bool
) -> None:
    assert status_of(open_count=0, dead_count=dead, done_count=done, picked_up=picked_up) is status


def test_delivered_is_final_and_nothing_returns_to_received() -> None:
    assert S.DELIVERED not in {source for source, _ in EVENT_TRANSITIONS}
    assert S.RECEIVED not in {target for _, target in EVENT_TRANSITIONS}


def test_the_table_of_status_changes_has_no_pair_of_equals() -> None:
    assert all(source is not target for source, target in EVENT_TRANSITIONS)
