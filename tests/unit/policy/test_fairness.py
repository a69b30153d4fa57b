"""How slots are shared: no organization takes them all, none is left out while slots are free, and all take turns."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from doorstep.policy.fairness import Demand, byte_shares, shares
from tests.support.builders import NOW, new_id

PLACES = 512
ORGS = [UUID(int=number) for number in range(8)]


def a_demand(org: int = 0, busy: int = 0, busy_max: int = PLACES, due: int = 0) -> Demand:
    return Demand(new_id(), ORGS[org], NOW + due, busy, busy_max)


class Scene:
    """Endpoints that want slots, beside attempts of endpoints that want no more, and the slots granted."""

    def __init__(self, demands: list[Demand], busy_elsewhere: dict[UUID, int], places: int) -> None:
        self.demands = demands
        self.places = places
        self.busy = Counter(busy_elsewhere)
        for demand in demands:
            self.busy[demand.org_id] += demand.busy
        self.granted = shares(demands, places, self.busy)
        self.gained: Counter[UUID] = Counter()
        for demand in demands:
            self.gained[demand.org_id] += self.granted.get(demand.endpoint_id, 0)

    @property
    def left(self) -> int:
        return self.places - self.busy.total() - self.gained.total()

    def held(self, org_id: UUID) -> int:
        return self.busy[org_id] + self.gained[org_id]

    def holds(self, demand: Demand) -> int:
        return demand.busy + self.granted.get(demand.endpoint_id, 0)

    def wanting(self) -> list[Demand]:
        """The demands that could use another slot."""
        return [demand for demand in self.demands if self.holds(demand) < demand.busy_max]


demands = st.lists(
    st.builds(a_demand, st.integers(0, 5), st.integers(0, 40), st.integers(0, 100), st.integers(-9, 9)), max_size=40
)
elsewhere = st.dictionaries(st.sampled_from(ORGS), st.integers(0, 100))
scenes = st.builds(Scene, demands, elsewhere, st.integers(1, PLACES))
roomy = st.builds(
    Scene,
    st.lists(st.builds(a_demand, st.integers(0, 5)), min_size=1, max_size=40),
    st.just({}),
    st.integers(1, PLACES),
)


@given(scenes)
def test_never_more_than_the_places_are_held(scene: Scene) -> None:
    assert not scene.granted or scene.left >= 0
    assert all(count > 0 for count in scene.granted.values())


@given(scenes)
def test_no_endpoint_gets_more_than_its_own_limit(scene: Scene) -> None:
    assert all(scene.holds(demand) <= max(demand.busy, demand.busy_max) for demand in scene.demands)


@given(scenes)
def test_an_organization_gets_nothing_beyond_its_first_place_that_would_not_leave_as_much_to_others(
    scene: Scene,
) -> None:
    """Each organization that shares the round may take one more slot after this organization's last turn."""
    for org_id, gained in scene.gained.items():
        assert gained == 0 or scene.held(org_id) == 1 or scene.held(org_id) <= scene.left + len(scene.gained)


@given(scenes)
def test_an_organization_gets_nothing_while_another_that_wants_more_holds_less(scene: Scene) -> None:
    """Three quarters of a share are enough for an organization that has a slot for each of its endpoints."""
    for wanting in scene.wanting():
        poor = scene.held(wanting.org_id)
        for org_id, gained in scene.gained.items():
            assert gained == 0 or scene.held(org_id) <= poor + 1 or 4 * poor >= 3 * scene.left


@given(scenes)
def test_an_endpoint_gets_nothing_while_another_of_its_organization_that_wants_more_holds_less(scene: Scene) -> None:
    for wanting in scene.wanting():
        for demand in scene.demands:
            if demand.org_id == wanting.org_id and demand.endpoint_id in scene.granted:
                assert scene.holds(demand) <= scene.holds(wanting) + 1


@given(scenes)
def test_whoever_is_refused_holds_nearly_as_much_as_is_kept_free(scene: Scene) -> None:
    """Slots beyond the reserved eighth stay free only if each refused organization holds about as many as are left."""
    for wanting in scene.wanting():
        held, kept = scene.held(wanting.org_id), scene.places // 8
        if held == 0:
            assert scene.left <= 0
        else:
            enough = held >= scene.left if scene.holds(wanting) == 0 else 4 * held >= 3 * scene.left
            assert enough or scene.left <= kept


@given(roomy)
def test_organizations_that_come_together_share_equally_and_leave_one_share(scene: Scene) -> None:
    share = scene.places // (len(scene.gained) + 1)
    assert scene.left >= share or share == 0
    assert max(scene.gained.values()) - min(scene.gained.values()) <= 1 + share // 3


@given(st.integers(1, PLACES), st.lists(st.tuples(st.integers(1, 9), st.integers(1, PLACES)), min_size=1, max_size=64))
def test_a_newcomer_finds_a_place_however_many_came_before_him_and_hang(
    places: int, floods: list[tuple[int, int]]
) -> None:
    """Guaranteed for as many organizations as an eighth of the slots, even if each one floods and its attempts hang."""
    busy: Counter[UUID] = Counter()
    for endpoints, busy_max in floods[: max(1, places // 8)]:
        newcomer = new_id()
        flood = [Demand(new_id(), newcomer, NOW, 0, busy_max) for _ in range(endpoints)]
        granted = shares(flood, places, busy)
        assert granted
        busy[newcomer] = sum(granted.values())
    assert busy.total() <= places


def test_the_last_eighth_of_the_places_is_given_out_one_by_one() -> None:
    """Otherwise each newcomer would halve the free slots, and none would be left after ten newcomers."""
    busy: Counter[UUID] = Counter()
    for _ in range(PLACES // 8):
        newcomer = Demand(new_id(), new_id(), NOW, 0, PLACES)
        busy[newcomer.org_id] = shares([newcomer], PLACES, busy)[newcomer.endpoint_id]
    assert sorted(busy.values())[:-4] == [1] * (PLACES // 8 - 4)


def test_an_organization_alone_gets_half_of_the_places_with_any_number_of_endpoints() -> None:
    flood = [a_demand(due=-100) for _ in range(600)]
    granted = shares(flood, PLACES, {})
    assert sum(granted.values()) == PLACES // 2


def test_tries_of_endpoints_that_want_nothing_more_count_for_their_organization() -> None:
    newcomer = a_demand(org=1)
    granted = shares([a_demand(org=0), newcomer], PLACES, {ORGS[0]: PLACES // 2})
    assert list(granted) == [newcomer.endpoint_id]


def test_a_flood_over_many_endpoints_takes_no_more_than_the_share_of_its_org() -> None:
    flood = [a_demand(org=0, due=-100) for _ in range(100)]
    newcomer = a_demand(org=1)
    granted = shares([*flood, newcomer], PLACES, {})
    assert sum(granted[one.endpoint_id] for one in flood) == granted[newcomer.endpoint_id]


def test_first_places_go_round_before_second_ones_and_the_longest_waiting_is_first() -> None:
    late, early, other = a_demand(org=0, due=5), a_demand(org=0, due=-5), a_demand(org=1, due=9)
    assert shares([late, early, other], PLACES, {ORGS[2]: PLACES - 2}) == {early.endpoint_id: 1, other.endpoint_id: 1}


def test_an_endpoint_whose_circuit_is_open_gets_nothing() -> None:
    assert shares([a_demand(busy_max=0)], PLACES, {}) == {}


def test_the_endpoints_of_an_org_divide_its_share() -> None:
    pair = [a_demand(org=0), a_demand(org=0)]
    assert list(shares(pair, 100, {}).values()) == [22, 21]


def test_an_endpoint_that_comes_later_finds_a_place_beside_one_that_took_all_it_could() -> None:
    (taken,) = shares([a_demand()], PLACES, {}).values()
    late = a_demand()
    assert shares([late], PLACES, {ORGS[0]: taken}).keys() == {late.endpoint_id}


# -- bytes -------------------------------------------------------------------------------------------------

ONE_MAX = 16
claims = st.lists(st.sampled_from(ORGS), max_size=40)
held = st.dictionaries(st.sampled_from(ORGS), st.integers(1, 400))


@given(claims, held, st.integers(ONE_MAX, 1_000))
def test_no_more_bytes_are_given_than_are_left_but_for_one_delivery_of_each_who_holds_nothing(
    orgs: list[UUID], held: dict[UUID, int], bytes_max: int
) -> None:
    given_now = byte_shares(orgs, held, bytes_max, ONE_MAX)
    firsts = sum(1 for org_id, count in zip(orgs, given_now, strict=True) if count == 1 and org_id not in held)
    most = sum(count + ONE_MAX for count in given_now if count > 1)
    assert most <= max(0, bytes_max - sum(held.values()))
    assert firsts <= len(set(orgs))


@given(claims, held, st.integers(ONE_MAX, 1_000))
def test_who_holds_nothing_may_have_at_least_one_delivery(
    orgs: list[UUID], held: dict[UUID, int], bytes_max: int
) -> None:
    given_now = byte_shares(orgs, held, bytes_max, ONE_MAX)
    served = {org_id for org_id, count in zip(orgs, given_now, strict=True) if count}
    assert set(orgs) - held.keys() <= served


@given(claims, held, st.integers(ONE_MAX, 1_000))
def test_who_holds_as_much_as_is_left_gets_nothing_more(
    orgs: list[UUID], held: dict[UUID, int], bytes_max: int
) -> None:
    left = bytes_max - sum(held.values())
    for org_id, count in zip(orgs, byte_shares(orgs, held, bytes_max, ONE_MAX), strict=True):
        assert not count or held.get(org_id, 0) < max(1, left)


def test_with_little_in_hand_every_claim_may_take_a_part_of_half_of_the_bytes() -> None:
    assert byte_shares(ORGS[:2], {}, 1_000, ONE_MAX) == [250, 250]
