"""Which endpoints an event goes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doorstep.model.endpoint import EndpointState
from doorstep.policy.routing import RouteTable, matches, most_specific
from tests.support.builders import an_endpoint, new_id
from tests.support.matrix import each_case

names = st.text("ab.*", min_size=1, max_size=6)


@each_case(
    ("pattern", "event_type", "takes"),
    [
        ("user.created", "user.created", True),
        ("user.created", "user.created.twice", False),
        ("user.created", "user", False),
        ("user.*", "user.created", True),
        ("user.*", "user.", True),
        ("user.*", "user", False),
        ("user.*", "users.created", False),
        ("user*", "users.created", True),
        ("*", "anything.at.all", True),
        ("USER.*", "user.created", False),
    ],
)
def test_a_pattern_is_an_exact_name_or_ends_in_a_star(pattern: str, event_type: str, takes: bool) -> None:
    assert matches(pattern, event_type) is takes


def test_the_longest_matching_pattern_is_the_most_specific_and_an_exact_name_beats_all() -> None:
    patterns = ["*", "user.*", "user.created", "user.created*"]
    assert most_specific(patterns, "user.created") == "user.created"
    assert most_specific(patterns, "user.created.twice") == "user.created*"
    assert most_specific(patterns, "user.deleted") == "user.*"
    assert most_specific(patterns, "order.paid") == "*"
    assert most_specific(["user.*"], "order.paid") is None


def test_an_event_goes_to_every_matching_endpoint_of_its_own_organization() -> None:
    ours, theirs = new_id(), new_id()
    every = an_endpoint(ours)
    orders = an_endpoint(ours, event_types=("order.*", "*.paid"))
    users = an_endpoint(ours, event_types=("user.*",))
    table = RouteTable([every, orders, users, an_endpoint(theirs)])
    assert table.route(ours, "order.paid") == (every, orders)
    assert table.route(ours, "user.created") == (every, users)
    assert table.route(new_id(), "order.paid") == ()


@each_case("state", [EndpointState.PAUSED, EndpointState.DISABLED])
def test_endpoints_that_are_held_are_routed_to_as_well(state: EndpointState) -> None:
    held = an_endpoint(new_id(), state=state)
    assert RouteTable([held]).route(held.org_id, "order.paid") == (held,)


def test_an_endpoint_is_taken_once_however_many_of_its_patterns_match() -> None:
    endpoint = an_endpoint(new_id(), event_types=("*", "order.*", "order.paid"))
    assert RouteTable([endpoint]).route(endpoint.org_id, "order.paid") == (endpoint,)


@given(st.lists(st.lists(names, min_size=1, max_size=3), max_size=5), st.lists(names, max_size=8))
def test_remembered_answers_are_the_same_as_worked_out_ones(patterns: list[list[str]], types: list[str]) -> None:
    org_id = new_id()
    endpoints = [an_endpoint(org_id, event_types=tuple(some)) for some in patterns]
    table = RouteTable(endpoints)
    for event_type in types * 2:
        fitting = [one for one in endpoints if any(matches(pattern, event_type) for pattern in one.event_types)]
        assert table.route(org_id, event_type) == tuple(fitting)


def test_a_sender_that_invents_event_types_does_not_fill_the_memory() -> None:
    endpoint = an_endpoint(new_id())
    table = RouteTable([endpoint])
    for number in range(25_000):
        table.route(endpoint.org_id, f"type.{number}")
    assert len(table._cached) <= table._CACHED_MAX
