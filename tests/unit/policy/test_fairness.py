"""How places are shared: nobody can take them all, and nobody is left out while there is room."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from doorstep.policy.fairness import Demand, shares
from tests.builders import NOW, new_id

PLACES = 512
ORGS = [UUID(int=number) for number in range(6)]


def a_demand(org: int = 0, busy: int = 0, busy_max: int = PLACES, due: int = 0) -> Demand:
    return Demand(new_id(), ORGS[org], NOW + due, busy, busy_max)


demands = st.lists(
    st.builds(a_demand, st.integers(0, 5), st.integers(0, 40), st.integers(0, 100), st.integers(-9, 9)), max_size=40
)


@given(demands, st.integers(1, PLACES), st.integers(-5, PLACES))
def test_never_more_than_is_free_is_given_away(wanted: list[Demand], places: int, free: int) -> None:
    granted = shares(wanted, places, free)
    assert sum(granted.values()) <= max(0, free)
    assert all(count > 0 for count in granted.values())


@given(demands, st.integers(1, PLACES), st.integers(0, PLACES))
def test_no_endpoint_gets_more_than_its_own_limit(wanted: list[Demand], places: int, free: int) -> None:
    granted = shares(wanted, places, free)
    for demand in wanted:
        given_now = granted.get(demand.endpoint_id, 0)
        assert not given_now or demand.busy + given_now <= demand.busy_max


@given(demands)
def test_everyone_idle_gets_at_least_one_while_there_is_room(wanted: list[Demand]) -> None:
    idle = [demand for demand in wanted if demand.busy == 0 and demand.busy_max > 0]
    granted = shares(wanted, PLACES, PLACES)
    assert all(granted.get(demand.endpoint_id, 0) >= 1 for demand in idle)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_one_share_always_stays_free_for_whoever_comes_next(orgs: list[int]) -> None:
    granted = shares([a_demand(org) for org in orgs], PLACES, PLACES)
    left = PLACES - sum(granted.values())
    assert left >= PLACES // (len(set(orgs)) + 1)


def test_a_flood_over_many_endpoints_takes_no_more_than_the_share_of_its_org() -> None:
    flood = [a_demand(org=0, due=-100) for _ in range(100)]
    newcomer = a_demand(org=1)
    granted = shares([*flood, newcomer], PLACES, PLACES)
    assert sum(granted[one.endpoint_id] for one in flood) <= PLACES // 3
    assert granted[newcomer.endpoint_id] == PLACES // 3


def test_a_flood_that_holds_its_share_gets_nothing_more_and_the_newcomer_its_own() -> None:
    alone = shares([a_demand()], PLACES, PLACES)
    (taken,) = alone.values()
    assert taken == PLACES // 2
    flood, newcomer = a_demand(org=0, busy=taken), a_demand(org=1)
    granted = shares([flood, newcomer], PLACES, PLACES - taken)
    assert granted == {newcomer.endpoint_id: PLACES // 3}


def test_the_longest_waiting_is_served_first_when_there_is_little() -> None:
    late, early = a_demand(org=0, due=5), a_demand(org=1, due=-5)
    assert shares([late, early], PLACES, 1) == {early.endpoint_id: 1}


def test_an_endpoint_whose_circuit_is_open_gets_nothing() -> None:
    assert shares([a_demand(busy_max=0)], PLACES, PLACES) == {}


def test_the_endpoints_of_an_org_divide_its_share() -> None:
    pair = [a_demand(org=0), a_demand(org=0)]
    assert list(shares(pair, 100, 100).values()) == [25, 25]
