"""What a process keeps of organizations and their endpoints: only what it needs, and always up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.encryption import Sealer
from doorstep.engine import claim as claim_module
from doorstep.engine import loaded
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.directory import seal_secret
from doorstep.errors import NotFound
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy, SigningSecret
from doorstep.model.org import Org, Routing
from tests.support.builders import NOW, an_endpoint, an_org, new_id
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench

ORGS = 50


class Tenants(Bench):
    """Many organizations with an endpoint each, and a count of what is read of them."""

    def __init__(self) -> None:
        super().__init__()
        self.orgs: list[Org] = []
        self.endpoints: list[Endpoint] = []
        self.read: list[UUID] = []
        """The endpoints that were read for the directory."""
        self.failing.answers["routing"] = self._routing

    async def _routing(self, known: Mapping[UUID, int]) -> list[Routing]:
        found = await self.failing.kept.routing(known)
        self.read += [endpoint.endpoint_id for routing in found for endpoint in routing.endpoints]
        return found

    async def fill(self, count: int = ORGS) -> None:
        for _ in range(count):
            org = an_org()
            await put(self.store, org)
            self.orgs.append(org)
            self.endpoints.append(await self.add(org))
        self.org = self.orgs[0]
        self.failing.calls.clear()

    async def add(self, org: Org, **fields: Any) -> Endpoint:
        endpoint = an_endpoint(org.org_id, **fields)
        await put(self.store, endpoint, 0)
        return replace(endpoint, version=1)

    async def change(self, endpoint: Endpoint, **fields: Any) -> Endpoint:
        changed = replace(endpoint, **fields)
        await put(self.store, changed)
        return replace(changed, version=changed.version + 1)

    def taken(self) -> tuple[list[str], list[UUID]]:
        """The calls of the store and the endpoints that were read since this was last asked."""
        calls, read = self.failing.calls, self.read
        self.failing.calls, self.read = [], []
        return calls, read

    def accepter(self) -> Accepter:
        return Accepter(self.store, self.directory, self.clock, self.tuning, self.telemetry, wake=self._wake)


@pytest.fixture
async def tenants() -> Tenants:
    tenants = Tenants()
    await tenants.fill()
    return tenants


async def send(tenants: Tenants, accepter: Accepter, org: Org) -> None:
    await accepter.accept([Draft(org_id=org.org_id, event_type="order.paid", payload=b"{}")])


async def test_an_event_loads_only_the_endpoints_of_its_own_organization_and_only_once(tenants: Tenants) -> None:
    accepter = tenants.accepter()
    await send(tenants, accepter, tenants.orgs[7])
    assert tenants.taken() == (["routing", "accept"], [tenants.endpoints[7].endpoint_id])
    await send(tenants, accepter, tenants.orgs[7])
    assert tenants.taken() == (["accept"], [])


async def test_a_change_by_one_organization_costs_the_events_of_the_others_nothing(tenants: Tenants) -> None:
    accepter = tenants.accepter()
    for org in tenants.orgs[:2]:
        await send(tenants, accepter, org)
    await tenants.change(tenants.endpoints[0], name="changed")
    await tenants.add(tenants.orgs[0])
    tenants.taken()
    await send(tenants, accepter, tenants.orgs[1])
    assert tenants.taken() == (["accept"], [])


async def test_after_a_change_of_its_own_only_the_changed_endpoint_is_read_again(tenants: Tenants) -> None:
    accepter, org = tenants.accepter(), tenants.orgs[0]
    others = [await tenants.add(org) for _ in range(20)]
    await send(tenants, accepter, org)
    await tenants.change(others[3], name="changed")
    tenants.taken()
    await send(tenants, accepter, org)
    assert tenants.taken() == (["accept", "routing", "accept"], [others[3].endpoint_id])


async def test_a_refresh_reads_one_line_however_much_is_loaded_and_then_only_what_changed(tenants: Tenants) -> None:
    await tenants.directory.load([org.org_id for org in tenants.orgs])
    await tenants.directory.refresh()
    tenants.taken()
    await tenants.directory.refresh()
    assert tenants.taken() == (["find RoutingChanges"], [])
    changed = await tenants.change(tenants.endpoints[5], name="changed")
    tenants.taken()
    await tenants.directory.refresh()
    assert tenants.taken() == (["find RoutingChanges", "routing"], [changed.endpoint_id])
    assert tenants.directory.endpoint(changed.endpoint_id) == changed


async def test_a_refresh_reads_nothing_of_organizations_that_are_not_loaded(tenants: Tenants) -> None:
    await tenants.directory.refresh()
    await tenants.directory.load([tenants.orgs[1].org_id])
    for endpoint in tenants.endpoints[2:]:
        await tenants.change(endpoint, name="changed")
    tenants.taken()
    await tenants.directory.refresh()
    assert tenants.taken() == (["find RoutingChanges"], [])


async def test_a_change_before_the_first_refresh_is_not_missed(tenants: Tenants) -> None:
    await tenants.directory.load([tenants.orgs[0].org_id])
    changed = await tenants.change(tenants.endpoints[0], state=EndpointState.PAUSED)
    await tenants.change(tenants.endpoints[1], name="changed later")
    await tenants.directory.refresh()
    assert tenants.directory.endpoint(changed.endpoint_id) == changed


async def test_a_new_endpoint_comes_last_a_changed_one_keeps_its_place_and_a_deleted_one_is_gone(
    tenants: Tenants,
) -> None:
    org, first = tenants.orgs[0], tenants.endpoints[0]
    second = await tenants.add(org)
    directory, org_id = tenants.directory, org.org_id
    assert await directory.endpoints_of(org_id) == (first, second)
    first, third = await tenants.change(first, name="changed"), await tenants.add(org)
    assert await directory.endpoints_of(org_id) == (first, second, third)
    await tenants.change(second, state=EndpointState.DELETED)
    assert await directory.endpoints_of(org_id) == (first, third)
    assert directory.endpoint(second.endpoint_id) is None
    assert directory.route(org_id, "order.paid") == (first, third)


async def test_a_deleted_organization_has_no_endpoints_and_cannot_send(tenants: Tenants) -> None:
    org, accepter = tenants.orgs[0], tenants.accepter()
    await send(tenants, accepter, org)
    await put(tenants.store, replace(org, deleted_at=NOW))
    await tenants.directory.refresh()
    assert tenants.directory.endpoint(tenants.endpoints[0].endpoint_id) is None
    assert await tenants.directory.endpoints_of(org.org_id) == ()
    with pytest.raises(NotFound):
        await send(tenants, accepter, org)


async def test_an_unknown_organization_is_found_as_soon_as_it_exists(tenants: Tenants) -> None:
    org = an_org()
    assert not await tenants.directory.has_org(org.org_id)
    await put(tenants.store, org)
    assert await tenants.directory.has_org(org.org_id)
    assert not await tenants.directory.has_org(new_id())


async def test_another_policy_or_route_applies_from_the_next_reading(tenants: Tenants) -> None:
    endpoint, directory = tenants.endpoints[0], tenants.directory
    await directory.load([endpoint.org_id])
    assert directory.policy(endpoint, "order.paid").delays == tenants.tuning.policy.delays
    assert directory.route(endpoint.org_id, "order.paid") == (endpoint,)
    changed = await tenants.change(endpoint, policy=RetryPolicy((1,)), event_types=("user.*",))
    await directory.reload([endpoint.org_id])
    assert directory.policy(changed, "order.paid").delays == (1,)
    assert directory.route(endpoint.org_id, "order.paid") == ()


async def test_an_older_copy_of_the_database_replaces_everything(tenants: Tenants) -> None:
    org_id = tenants.orgs[0].org_id
    await tenants.directory.load([org_id])
    await tenants.directory.refresh()
    older = Tenants()
    await put(older.store, tenants.orgs[0])
    kept = await older.add(tenants.orgs[0])
    tenants.failing.kept = older.failing.kept
    await tenants.directory.refresh()
    assert await tenants.directory.endpoints_of(org_id) == (kept,)
    assert tenants.directory.endpoint(tenants.endpoints[0].endpoint_id) is None


# -- how much is kept --------------------------------------------------------------------------------------


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "LOADED_MAX", 20)
    monkeypatch.setattr(loaded, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(loaded, "_EVICTION_PAUSE_SECONDS", 0.0)


def kept(tenants: Tenants) -> list[int]:
    return [number for number, org in enumerate(tenants.orgs) if tenants.directory.is_loaded(org.org_id)]


@pytest.mark.usefixtures("little_room")
async def test_the_organizations_that_were_not_needed_for_longest_are_forgotten(tenants: Tenants) -> None:
    for org in tenants.orgs:
        await tenants.directory.load([org.org_id])
        await tenants.directory.load([tenants.orgs[0].org_id])
    assert len(kept(tenants)) <= 10, "each takes two places"
    assert kept(tenants)[0] == 0 and kept(tenants)[-1] == ORGS - 1
    assert tenants.directory.endpoint(tenants.endpoints[1].endpoint_id) is None
    await send(tenants, tenants.accepter(), tenants.orgs[1])
    assert tenants.directory.endpoint(tenants.endpoints[1].endpoint_id) is not None


@pytest.mark.usefixtures("little_room")
async def test_what_has_attempts_in_flight_is_never_forgotten(tenants: Tenants) -> None:
    endpoint = tenants.endpoints[0]
    (delivery_id,) = await tenants.accept(endpoint)
    await tenants.deliverer.round()
    for org in tenants.orgs:
        await tenants.directory.load([org.org_id])
    assert 0 in kept(tenants) and len(kept(tenants)) <= 11
    tenants.http.answer(500, b"")
    await tenants.write_down()
    assert (await tenants.delivery(delivery_id)).state is DeliveryState.PENDING, "its endpoint is still known"


async def test_a_claim_whose_endpoint_was_forgotten_is_released_not_given_up(tenants: Tenants) -> None:
    endpoint = tenants.endpoints[0]
    (delivery_id,) = await tenants.accept(endpoint)
    claim = tenants.failing.kept.claim

    async def forgetting(*args: Any) -> Any:
        claims = await claim(*args)
        tenants.directory._forget([endpoint.org_id])
        return claims

    tenants.failing.answers["claim"] = forgetting
    await tenants.deliver()
    assert (await tenants.delivery(delivery_id)).state is DeliveryState.PENDING
    tenants.failing.answers.pop("claim")
    await tenants.deliver()
    assert (await tenants.delivery(delivery_id)).state is DeliveryState.DELIVERED


async def test_what_is_forgotten_while_it_is_read_is_not_kept_in_part(tenants: Tenants) -> None:
    endpoint, org = tenants.endpoints[0], tenants.orgs[0]
    await tenants.directory.load([org.org_id])
    added = await tenants.add(org)
    read = tenants.failing.answers["routing"]

    async def forgetting(known: Mapping[UUID, int]) -> Any:
        found = await read(known)
        tenants.directory._forget([org.org_id])
        return found

    tenants.failing.answers["routing"] = forgetting
    await tenants.directory.reload([org.org_id])
    assert not tenants.directory.is_loaded(org.org_id) and tenants.directory.endpoint(added.endpoint_id) is None
    tenants.failing.answers["routing"] = read
    assert await tenants.directory.endpoints_of(org.org_id) == (endpoint, added)


async def test_secrets_are_opened_only_for_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants, opened = Tenants(), []
    unseal = Sealer.unseal

    def counting(sealer: Sealer, sealed: bytes, *, context: str) -> bytes:
        opened.append(context)
        return unseal(sealer, sealed, context=context)

    monkeypatch.setattr(Sealer, "unseal", counting)
    org = an_org()
    await put(tenants.store, org)
    ids = [new_id() for _ in range(3)]
    endpoints = [
        await tenants.add(
            org, endpoint_id=one, secrets=(SigningSecret(seal_secret(one, tenants.sealer, "whsec_" + "A" * 32)),)
        )
        for one in ids
    ]
    await tenants.directory.load([org.org_id])
    assert opened == []
    await tenants.accept(endpoints[1])
    await tenants.deliver()
    assert opened == [f"secret:{ids[1]}"]


async def test_a_round_loads_only_what_is_due_and_the_few_that_are_due_next(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "_LATER_MAX", 3)
    for number, endpoint in enumerate(tenants.endpoints[1:], 1):
        await tenants.accept(endpoint, due_at=NOW + number * SECOND)
    await tenants.accept(tenants.endpoints[0])
    assert await tenants.deliverer.round() == NOW + SECOND
    assert kept(tenants) == [0, 1, 2, 3]
    assert [one.claim.endpoint_id for one in tenants.http.started] == [tenants.endpoints[0].endpoint_id]


async def test_deliveries_behind_many_that_are_held_are_not_overlooked(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "_LATER_MAX", 3)
    for number, endpoint in enumerate(tenants.endpoints[:5], 1):
        await tenants.change(endpoint, state=EndpointState.PAUSED)
        await tenants.accept(endpoint, due_at=NOW + number * SECOND)
    await tenants.accept(tenants.endpoints[5], due_at=NOW + 6 * SECOND)
    assert await tenants.deliverer.round() == NOW + 3 * SECOND, "as far as it has looked"
    tenants.clock.advance(3)
    assert await tenants.deliverer.round() == NOW + 6 * SECOND
    tenants.clock.advance(3)
    await tenants.deliverer.round()
    assert [one.claim.endpoint_id for one in tenants.http.started] == [tenants.endpoints[5].endpoint_id]
