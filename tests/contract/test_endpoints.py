"""Endpoints, and the version of the endpoint list from which a fan-out is computed."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.endpoint import CircuitRules, Endpoint, EndpointState, RetryPolicy, SigningSecret
from doorstep.model.listing import AuditFilter
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import an_endpoint, an_org, new_id
from tests.support.shortcuts import living_endpoints, put, routing_versions


def a_line(scene: Scene, actor: str = "ops") -> AuditEntry:
    subjects = (str(scene.endpoint.endpoint_id),)
    return AuditEntry(
        at=scene.now, org_id=scene.org_id, actor=actor, action="endpoint.pause", subjects=subjects, result="paused"
    )


async def test_an_endpoint_reads_back_as_it_was_given(scene: Scene) -> None:
    endpoint = an_endpoint(
        scene.org_id,
        name="Łódź 🚚",
        event_types=("user.*", "order.paid"),
        policy=RetryPolicy((1.5, 2), 0.2, 99, "mine"),
        policy_by_event_type={"order.paid": RetryPolicy((), name="manual")},
        timeout_seconds=2.5,
        concurrency_max=7,
        rate_per_second=0.25,
        sealed_headers=b"\x00\xffsealed",
        retry_on=("*",),
        give_up_on=("418",),
        code_map={"21610": "REJECTED"},
        circuit=CircuitRules(2, 1.5, 60),
        secrets=(SigningSecret(b"\x00\x01", "v1a", scene.now, "whpk_public"), SigningSecret(b"\x02")),
        state=EndpointState.PAUSED,
        state_reason="by hand",
        drain_per_second=3,
        drain_before=scene.now,
        updated_at=scene.now,
    )
    await put(scene.store, endpoint, 0)
    assert await scene.store.get(Endpoint, scene.org_id, endpoint.endpoint_id) == endpoint
    assert endpoint in (await living_endpoints(scene.store))


async def test_routing_gives_all_endpoints_but_deleted_ones_in_the_order_of_their_creation(scene: Scene) -> None:
    made = [scene.endpoint] + [await scene.add_endpoint(state=state) for state in EndpointState]
    assert await living_endpoints(scene.store) == [one for one in made if one.state is not EndpointState.DELETED]


async def test_a_deleted_endpoint_can_still_be_read(scene: Scene) -> None:
    gone = await scene.add_endpoint(state=EndpointState.DELETED)
    assert await scene.store.get(Endpoint, scene.org_id, gone.endpoint_id) == gone


async def test_every_change_of_an_endpoint_makes_a_new_version_that_all_stores_see(
    scene: Scene, other_store: Store
) -> None:
    versions = []
    for name in ("a", "b", "b"):
        await scene.change_endpoint(name=name)
        versions.append((await routing_versions(other_store))[scene.org_id])
        assert [one.version for one in await other_store.routing({scene.org_id: -1})] == versions[-1:]
    assert versions == sorted(set(versions))
    assert [one.name for one in (await living_endpoints(scene.store))] == ["b"]


async def test_a_change_computed_from_an_old_version_is_refused_and_changes_nothing(scene: Scene) -> None:
    changed = await scene.change_endpoint(name="second")
    version_before = await routing_versions(scene.store)
    for stale in (0, 1, 3):
        late = replace(changed, state=EndpointState.DELETED, version=stale)
        assert not await put(scene.store, late, stale, entry=a_line(scene))
    assert await scene.store.get(Endpoint, scene.org_id, changed.endpoint_id) == changed
    assert await routing_versions(scene.store) == version_before, "nobody need read the endpoints anew"
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == ()


async def test_an_endpoint_that_does_not_exist_can_only_be_created(scene: Scene) -> None:
    assert not await put(scene.store, an_endpoint(scene.org_id), 1)
    assert (await living_endpoints(scene.store)) == [scene.endpoint]


@pytest.mark.parametrize("version", [0, 1])
async def test_of_concurrent_writers_of_one_version_one_wins(scene: Scene, other_store: Store, version: int) -> None:
    target = scene.endpoint if version else an_endpoint(scene.org_id)
    before = await routing_versions(scene.store)
    names = [f"writer {n}" for n in range(10)]
    won = await asyncio.gather(
        *(
            put(store, replace(target, name=name), version, entry=a_line(scene, actor=name))
            for name, store in zip(names, [scene.store, other_store] * 5, strict=True)
        )
    )
    assert sorted(won) == [False] * 9 + [True]
    (winner,) = (name for name, first in zip(names, won, strict=True) if first)
    kept = await other_store.get(Endpoint, scene.org_id, target.endpoint_id)
    assert (kept.name, kept.version) == (winner, version + 1)
    assert [line.actor for line in (await scene.store.page(scene.org_id, AuditFilter())).items] == [winner]
    assert await routing_versions(other_store) == {scene.org_id: before[scene.org_id] + 1}


async def test_an_organization_has_no_more_endpoints_than_it_may_however_many_are_made_at_once(
    scene: Scene, other_store: Store
) -> None:
    made = [an_endpoint(scene.org_id) for _ in range(10)]
    told = await asyncio.gather(
        *(
            put(store, endpoint, 0, entry=a_line(scene), limit=4)
            for store, endpoint in zip([scene.store, other_store] * 5, made, strict=True)
        ),
        return_exceptions=True,
    )
    refusals = [answer for answer in told if answer is not True]
    assert [type(refusal) for refusal in refusals] == [Conflict] * 7
    assert "at most 4 endpoints" in str(refusals[0])
    assert len(await living_endpoints(other_store)) == 4
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 3


async def test_what_is_deleted_or_another_organizations_takes_up_no_room_for_endpoints(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    await put(scene.store, an_endpoint(other.org_id), 0)
    await scene.add_endpoint(state=EndpointState.DELETED)
    assert await put(scene.store, an_endpoint(scene.org_id), 0, limit=2)
    with pytest.raises(Conflict):
        await put(scene.store, an_endpoint(scene.org_id), 0, limit=2)


async def test_an_endpoint_can_be_changed_where_there_are_more_than_there_may_be(scene: Scene) -> None:
    await scene.add_endpoint()
    assert await put(scene.store, replace(scene.endpoint, name="second"), 1, limit=1)


# -- names -------------------------------------------------------------------------------------------------


async def test_of_concurrent_endpoints_with_one_name_one_is_made_and_the_others_are_told_which(
    scene: Scene, other_store: Store
) -> None:
    made = [an_endpoint(scene.org_id, name="one name") for _ in range(6)]
    stores = [scene.store, other_store] * 3
    told = await asyncio.gather(
        *(put(store, one, 0) for store, one in zip(stores, made, strict=True)), return_exceptions=True
    )
    (kept,) = (one for one, answer in zip(made, told, strict=True) if answer is True)
    assert [type(answer) for answer in told if answer is not True] == [Conflict] * 5
    assert all(str(kept.endpoint_id) in str(answer) for answer in told if answer is not True)


async def test_an_endpoint_cannot_take_the_name_of_another(scene: Scene) -> None:
    other = await scene.add_endpoint(name="taken")
    with pytest.raises(Conflict, match=str(other.endpoint_id)):
        await put(scene.store, replace(scene.endpoint, name="taken"), 1)
    assert await put(scene.store, replace(scene.endpoint, event_types=("order.*",)), 1), "its own name is no obstacle"


async def test_a_deleted_endpoint_and_another_organization_leave_their_names_free(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    await put(scene.store, an_endpoint(other.org_id, name="free"), 0)
    for _ in range(2):
        await scene.add_endpoint(name="free", state=EndpointState.DELETED)
    assert await put(scene.store, an_endpoint(scene.org_id, name="free"), 0)


async def test_channels_of_different_organizations_may_share_a_name(store: Store) -> None:
    await put(store, replace(an_org(), org_id=OPERATIONS_ORG))
    for _ in range(2):
        assert await put(store, an_endpoint(OPERATIONS_ORG, name="on call"), 0)


async def test_a_change_and_its_audit_line_are_kept_together(scene: Scene) -> None:
    line = a_line(scene)
    assert await put(scene.store, replace(scene.endpoint, name="second"), 1, entry=line)
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (line,)


async def test_reading_changes_no_version(scene: Scene) -> None:
    version = await routing_versions(scene.store)
    await scene.accept()
    await scene.claim()
    assert await routing_versions(scene.store) == version


async def test_an_endpoint_of_an_unknown_organization_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await put(scene.store, an_endpoint(new_id()), 0)


async def test_an_endpoint_cannot_be_taken_over_or_seen_by_another_organization(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    with pytest.raises(NotFound):
        await put(scene.store, an_endpoint(other.org_id, endpoint_id=scene.endpoint.endpoint_id), 0)
    with pytest.raises(NotFound):
        await scene.store.get(Endpoint, other.org_id, scene.endpoint.endpoint_id)
    assert await scene.store.get(Endpoint, scene.org_id, scene.endpoint.endpoint_id) == scene.endpoint
