"""Endpoints, and the version of the picture that a fan-out is computed from."""

from __future__ import annotations

import pytest

from doorstep.errors import NotFound
from doorstep.model.endpoint import CircuitRules, EndpointState, SigningSecret
from doorstep.model.retry_policy import RetryPolicy
from doorstep.stores.store import Store
from tests.builders import an_endpoint, an_org, new_id
from tests.contract.scene import Scene


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
        secrets=(SigningSecret(b"\x00\x01", "v1a", scene.now), SigningSecret(b"\x02")),
        state=EndpointState.PAUSED,
        state_reason="by hand",
        drain_per_second=3,
        drain_before=scene.now,
        updated_at=scene.now,
    )
    await scene.store.put_endpoint(endpoint)
    assert await scene.store.endpoint(scene.org_id, endpoint.endpoint_id) == endpoint
    assert endpoint in (await scene.store.routing()).endpoints


async def test_routing_gives_all_endpoints_but_deleted_ones_in_the_order_of_their_creation(scene: Scene) -> None:
    made = [scene.endpoint] + [await scene.add_endpoint(state=state) for state in EndpointState]
    routing = await scene.store.routing()
    assert list(routing.endpoints) == [one for one in made if one.state is not EndpointState.DELETED]


async def test_a_deleted_endpoint_can_still_be_read(scene: Scene) -> None:
    gone = await scene.add_endpoint(state=EndpointState.DELETED)
    assert await scene.store.endpoint(scene.org_id, gone.endpoint_id) == gone


async def test_every_change_of_an_endpoint_makes_a_new_version_that_all_stores_see(
    scene: Scene, other_store: Store
) -> None:
    versions = []
    for name in ("a", "b", "b"):
        await scene.store.put_endpoint(an_endpoint(scene.org_id, endpoint_id=scene.endpoint.endpoint_id, name=name))
        versions.append(await other_store.routing_version())
        assert (await other_store.routing()).version == versions[-1]
    assert versions == sorted(set(versions))
    assert [one.name for one in (await scene.store.routing()).endpoints] == ["b"]


async def test_reading_changes_no_version(scene: Scene) -> None:
    version = await scene.store.routing_version()
    await scene.accept()
    await scene.claim()
    assert await scene.store.routing_version() == version


async def test_an_endpoint_of_an_unknown_organization_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.store.put_endpoint(an_endpoint(new_id()))


async def test_an_endpoint_cannot_be_taken_over_or_seen_by_another_organization(scene: Scene) -> None:
    other = an_org()
    await scene.store.put_org(other)
    with pytest.raises(NotFound):
        await scene.store.put_endpoint(an_endpoint(other.org_id, endpoint_id=scene.endpoint.endpoint_id))
    with pytest.raises(NotFound):
        await scene.store.endpoint(other.org_id, scene.endpoint.endpoint_id)
    assert await scene.store.endpoint(scene.org_id, scene.endpoint.endpoint_id) == scene.endpoint
