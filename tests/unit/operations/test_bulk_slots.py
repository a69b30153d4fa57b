"""The slots of a bulk retry: how many deliveries per endpoint may wait, based on the progress seen in earlier looks."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from doorstep.model.bulk import InFlightRetry
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.operations.bulk_steps import EndpointSlots
from tests.support.builders import NOW, new_id


def letters_to(endpoint_id: UUID) -> Iterator[Delivery]:
    while True:
        yield Delivery(
            delivery_id=new_id(),
            org_id=new_id(),
            event_id=new_id(),
            endpoint_id=endpoint_id,
            event_type="order.paid",
            state=DeliveryState.DEAD,
            due_at=None,
            created_at=NOW,
            retries_max=3,
        )


def fill(places: EndpointSlots, endpoint_id: UUID) -> list[Delivery]:
    """Take as many deliveries as there are slots for."""
    taken: list[Delivery] = []
    for letter in letters_to(endpoint_id):
        if not places.take(letter):
            return taken
        taken.append(letter)
    raise AssertionError("letters never end")


def still(letters: list[Delivery], *, waiting: bool = True) -> list[InFlightRetry]:
    return [InFlightRetry(one.delivery_id, one.endpoint_id, waiting) for one in letters]


def test_an_endpoint_that_is_alone_has_25_and_no_more_while_none_of_them_ends() -> None:
    first = EndpointSlots(())
    taken = fill(first, new_id())
    assert len(taken) == 25
    assert fill(EndpointSlots(still(taken), first), taken[0].endpoint_id) == []


def test_a_slow_endpoint_has_no_longer_queue_than_twice_what_ends_between_two_looks() -> None:
    first, endpoint_id = EndpointSlots(()), new_id()
    taken = fill(first, endpoint_id)
    second = EndpointSlots(still(taken[1:]), first)
    assert fill(second, endpoint_id) == [], "one has ended and 24 still wait"
    third = EndpointSlots(still(taken[24:]), second)
    assert len(fill(third, endpoint_id)) == 24, "23 have ended since: it has become quick"
    fourth = EndpointSlots(still(taken[24:]), EndpointSlots(still(taken[22:]), second))
    assert len(fill(fourth, endpoint_id)) == 3, "two have ended and one waits"


def test_what_is_being_tried_is_no_queue() -> None:
    first, endpoint_id = EndpointSlots(()), new_id()
    taken = fill(first, endpoint_id)
    assert len(fill(EndpointSlots(still(taken, waiting=False), first), endpoint_id)) == 25


def test_places_shrink_as_they_are_held_and_one_of_a_hundred_and_fifty_dead_endpoints_still_has_one() -> None:
    places = EndpointSlots(())
    held = [len(fill(places, new_id())) for _ in range(150)]
    assert (held[0], held[149]) == (25, 1)
    assert held == sorted(held, reverse=True)
    assert places.free > 0


def test_nothing_has_a_place_when_all_are_held() -> None:
    dead = [letter for letter, _ in zip(letters_to(new_id()), range(1_000), strict=False)]
    assert fill(EndpointSlots(still(dead)), new_id()) == []


def test_an_endpoint_gets_on_when_it_had_a_place_or_a_result_since_the_last_look() -> None:
    first, endpoint_id = EndpointSlots(()), new_id()
    one, other, *_ = taken = fill(first, endpoint_id)
    assert first.makes_progress(one)
    stuck = EndpointSlots(still(taken), first)
    assert not stuck.makes_progress(other)
    assert EndpointSlots(still(taken[1:]), stuck).makes_progress(other)
