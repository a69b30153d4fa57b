"""R10.4: a channel and its endpoint are created and deleted together."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import (
    OPERATIONS_ORG,
    AlertConfigs,
    Channel,
    ChannelKind,
    ChannelTest,
    ChannelTests,
    Incidents,
)
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import AuditFilter
from doorstep.stores.store import Delete, Put, Store
from tests.contract.scene import Scene
from tests.support.builders import an_endpoint, an_org, new_id
from tests.support.shortcuts import living_endpoints, put, routing_versions


def a_line(scene: Scene) -> AuditEntry:
    return AuditEntry(at=scene.now, org_id=scene.org_id, actor="ops", action="x", subjects=(), result="ok")


def a_channel(scene: Scene, **fields: object) -> tuple[Channel, Endpoint]:
    endpoint = replace(an_endpoint(OPERATIONS_ORG), version=0)
    channel = Channel(
        channel_id=endpoint.endpoint_id, org_id=scene.org_id, name="ops", means=ChannelKind.SLACK, shown="…"
    )
    return replace(channel, **fields), endpoint


def both(channel: Channel, endpoint: Endpoint, limit: int = 10) -> list[Put | Delete]:
    """The changes that create a channel and its endpoint."""
    return [Put(document=channel, expected_version=0, limit=limit), Put(document=endpoint, expected_version=0)]


async def add_channel(store: Store, scene: Scene, limit: int) -> bool:
    return await store.write(both(*a_channel(scene), limit), a_line(scene))


def without(channel: Channel, endpoint: Endpoint) -> list[Put | Delete]:
    """The changes that delete a channel and write its endpoint, which the caller has marked as deleted."""
    return [Put(document=endpoint, expected_version=endpoint.version), Delete(document=channel)]


@pytest.fixture
async def reserved(scene: Scene) -> Scene:
    await put(scene.store, an_org(org_id=OPERATIONS_ORG))
    return scene


async def there(scene: Scene) -> tuple[list[UUID], set[UUID]]:
    endpoints = await living_endpoints(scene.store)
    reserved = {one.endpoint_id for one in endpoints if one.org_id == OPERATIONS_ORG}
    return [one.config_id for one in await scene.store.find(scene.org_id, AlertConfigs())], reserved


async def audited(scene: Scene) -> int:
    return len((await scene.store.page(scene.org_id, AuditFilter())).items)


async def test_a_channel_is_made_with_its_endpoint_and_one_line_of_audit(reserved: Scene, other_store: Store) -> None:
    channel, endpoint = a_channel(reserved)
    version, lines = await routing_versions(reserved.store), await audited(reserved)
    assert await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    assert await other_store.find(reserved.org_id, AlertConfigs()) == [replace(channel, version=1)]
    kept = await other_store.get(Endpoint, OPERATIONS_ORG, channel.channel_id)
    assert kept == replace(endpoint, version=1)
    assert (await routing_versions(reserved.store))[OPERATIONS_ORG] > version[OPERATIONS_ORG]
    assert await audited(reserved) == lines + 1


async def test_where_there_is_no_room_for_a_channel_its_endpoint_is_not_made_either(reserved: Scene) -> None:
    assert await add_channel(reserved.store, reserved, 1)
    before, lines = await there(reserved), await audited(reserved)
    with pytest.raises(Conflict):
        await add_channel(reserved.store, reserved, 1)
    assert (await there(reserved), await audited(reserved)) == (before, lines)


async def test_for_an_unknown_organization_neither_is_made(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved, org_id=new_id())
    with pytest.raises(NotFound):
        await reserved.store.write(
            both(channel, endpoint),
            a_line(reserved),
        )
    assert await there(reserved) == ([], set())


async def test_an_endpoint_that_exists_is_nobodys_new_channel(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved)
    assert await put(reserved.store, endpoint, 0)
    assert not await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    assert await there(reserved) == ([], {channel.channel_id})


async def test_a_channel_that_exists_is_not_made_again_and_leaves_no_endpoint(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved)
    assert await put(reserved.store, channel, 0, entry=a_line(reserved), limit=10)
    assert not await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    assert await there(reserved) == ([channel.channel_id], set())


async def test_the_endpoint_of_a_channel_that_is_gone_stays_as_it_is(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved)
    await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    assert await reserved.store.write([Delete(document=channel)], a_line(reserved))
    gone = replace(endpoint, version=1, state=EndpointState.DELETED)
    assert not await reserved.store.write(without(channel, gone), a_line(reserved))
    assert await there(reserved) == ([], {channel.channel_id})


async def test_a_channel_of_others_is_not_removed(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved)
    await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    stranger = an_org()
    await put(reserved.store, stranger)
    gone = replace(endpoint, version=1, state=EndpointState.DELETED)
    line = replace(a_line(reserved), org_id=stranger.org_id)
    assert not await reserved.store.write(
        without(replace(channel, org_id=stranger.org_id), gone),
        line,
    )
    assert await there(reserved) == ([channel.channel_id], {channel.channel_id})


async def test_what_becomes_of_a_channel_says_nothing_about_what_is_the_case(reserved: Scene) -> None:
    """Creating, testing and deleting a channel, in either way, adds no incident that alerting would evaluate."""
    channel, endpoint = a_channel(reserved)
    await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    test = ChannelTest(channel.channel_id, new_id(), reserved.now, 3)
    tests = ChannelTests(org_id=reserved.org_id, tests=(test,))
    assert await put(reserved.store, tests, 0, entry=a_line(reserved), limit=10)
    assert await reserved.store.find(reserved.org_id, AlertConfigs()) == [
        replace(channel, version=1),
        replace(tests, version=1),
    ]
    gone = replace(endpoint, version=1, state=EndpointState.DELETED)
    assert await reserved.store.write(without(channel, gone), a_line(reserved))
    other, _ = a_channel(reserved)
    await put(reserved.store, other, 0, entry=a_line(reserved), limit=10)
    await reserved.store.write([Delete(document=other)], a_line(reserved))
    assert await reserved.store.find(reserved.org_id, Incidents(limit=10)) == []


async def test_a_channel_goes_with_its_endpoint(reserved: Scene, other_store: Store) -> None:
    channel, endpoint = a_channel(reserved)
    await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    gone = replace(endpoint, version=1, state=EndpointState.DELETED)
    assert await reserved.store.write(without(channel, gone), a_line(reserved))
    assert await there(reserved) == ([], set())
    kept = await other_store.get(Endpoint, OPERATIONS_ORG, channel.channel_id)
    assert kept.state is EndpointState.DELETED
    assert not await reserved.store.write(without(channel, gone), a_line(reserved))


async def test_a_channel_whose_endpoint_changed_meanwhile_stays_whole(reserved: Scene) -> None:
    channel, endpoint = a_channel(reserved)
    await reserved.store.write(
        both(channel, endpoint),
        a_line(reserved),
    )
    assert await put(reserved.store, replace(endpoint, state=EndpointState.DISABLED), 1)
    before, lines = await there(reserved), await audited(reserved)
    gone = replace(endpoint, version=1, state=EndpointState.DELETED)
    assert not await reserved.store.write(without(channel, gone), a_line(reserved))
    assert (await there(reserved), await audited(reserved)) == (before, lines)


async def test_channels_made_at_once_are_each_whole_and_not_more_than_there_may_be(
    reserved: Scene, other_store: Store
) -> None:
    async def is_added(store: Store) -> bool:
        try:
            return await add_channel(store, reserved, 5)
        except Conflict:
            return False

    made = await asyncio.gather(*(is_added(store) for store in [reserved.store, other_store] for _ in range(6)))
    arranged, endpoints = await there(reserved)
    assert made.count(True) == len(arranged) == 5
    assert set(arranged) == endpoints
