"""Which endpoints an event goes to."""

from __future__ import annotations

from doorstep.model.endpoint import EndpointState
from doorstep.policy.routing import matches, most_specific, route
from tests.support.builders import an_endpoint, new_id
from tests.support.matrix import each_case


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


def test_an_event_goes_to_every_matching_endpoint_in_their_order() -> None:
    org_id = new_id()
    every = an_endpoint(org_id)
    orders = an_endpoint(org_id, event_types=("order.*", "*.paid"))
    users = an_endpoint(org_id, event_types=("user.*",))
    assert route([every, orders, users], "order.paid") == (every, orders)
    assert route([every, orders, users], "user.created") == (every, users)
    assert route([], "order.paid") == ()


@each_case("state", [EndpointState.PAUSED, EndpointState.DISABLED])
def test_endpoints_that_are_held_are_routed_to_as_well(state: EndpointState) -> None:
    held = an_endpoint(new_id(), state=state)
    assert route([held], "order.paid") == (held,)


def test_an_endpoint_is_taken_once_however_many_of_its_patterns_match() -> None:
    endpoint = an_endpoint(new_id(), event_types=("*", "order.*", "order.paid"))
    assert route([endpoint], "order.paid") == (endpoint,)
