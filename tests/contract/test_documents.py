"""Documents: each kind is created once, replaced only if the expected version is current, and written as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import AlertConfigs, AlertRule, Channel, ChannelKind, ChannelTests, Rule, Silence
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.model.claim import WorkerEntry
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.entity import Entity, PipelineDeclaration, PipelineDeclarations
from doorstep.model.event import EventSummary, EventView
from doorstep.model.listing import AuditFilter, DeadLetterFilter, OrgKeys, Orgs, RoutingChanges, Workers
from doorstep.model.org import ApiKey, Role
from doorstep.stores.store import Delete, Document, Put, Store
from tests.contract.scene import Scene
from tests.support.builders import NOW, an_endpoint, an_org, new_id
from tests.support.shortcuts import living_endpoints, put, routing_versions

Maker = Callable[[Scene], Any]


def a_key(scene: Scene) -> ApiKey:
    digest = new_id().bytes * 2
    return ApiKey(
        key_id=new_id(), org_id=scene.org_id, name="a", role=Role.ADMIN, prefix="dk_ab", digest=digest, created_at=NOW
    )


def a_bulk(scene: Scene) -> Bulk:
    selection = Selection(letters=DeadLetterFilter())
    return Bulk(
        bulk_id=new_id(), org_id=scene.org_id, kind=BulkKind.RETRY, selection=selection, actor="ops", created_at=NOW
    )


def a_worker(scene: Scene) -> WorkerEntry:
    return WorkerEntry(name="w", host="web-1", pid=1, version="1", started_at=NOW, places=5, seen_at=NOW)


VERSIONED: dict[str, Maker] = {
    "endpoint": lambda scene: replace(an_endpoint(scene.org_id), version=0),
    "rule": lambda scene: AlertRule(org_id=scene.org_id, rule=Rule.DEAD_LETTERS, threshold=7.0),
    "silence": lambda scene: Silence(silence_id=new_id(), org_id=scene.org_id, from_at=0, until_at=NOW + 1),
    "channel": lambda scene: Channel(
        channel_id=new_id(), org_id=scene.org_id, name="ops", means=ChannelKind.SLACK, shown="…"
    ),
    "channel tests": lambda scene: ChannelTests(org_id=scene.org_id),
}
OTHERS: dict[str, Maker] = {
    "organization": lambda scene: an_org(),
    "key": a_key,
    "worker": a_worker,
    "declaration": lambda scene: PipelineDeclaration(org_id=scene.org_id, pipeline="protocol", declared_at=NOW),
}
EVERY = VERSIONED | OTHERS | {"bulk": a_bulk}


def an_entry(scene: Scene) -> AuditEntry:
    return AuditEntry(at=scene.now, org_id=scene.org_id, actor="ops", action="x", subjects=(), result="ok")


def a_put(document: Document, version: int | None = None) -> Put:
    """A write of the document: creates it, unless a version is given."""
    is_versioned = not isinstance(document, WorkerEntry) and hasattr(document, "version")
    return Put(document=document, expected_version=0 if version is None and is_versioned else version)


async def stored(store: Store, scene: Scene) -> dict[str, Any]:
    """All documents and the audit log."""
    return {
        "orgs": await store.find(None, Orgs()),
        "keys": await store.find(scene.org_id, OrgKeys()),
        "configs": await store.find(scene.org_id, AlertConfigs()),
        "workers": await store.find(None, Workers(seen_after=0, limit=10)),
        "pipelines": await store.find(None, PipelineDeclarations()),
        "routing": await routing_versions(store),
        "endpoints": await living_endpoints(store),
        "audit": (await store.page(scene.org_id, AuditFilter())).items,
    }


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
async def test_a_document_and_its_audit_entry_are_written_together(
    scene: Scene, other_store: Store, make: Maker
) -> None:
    document, before = make(scene), await stored(scene.store, scene)
    assert await scene.store.write([a_put(document)], an_entry(scene))
    after = await stored(other_store, scene)
    assert after["audit"] == (an_entry(scene),)
    if isinstance(document, Bulk):
        assert await other_store.get(Bulk, scene.org_id, document.bulk_id) == document
    else:
        assert {name for name in after if after[name] != before[name]} > {"audit"}


@pytest.mark.parametrize("make", VERSIONED.values(), ids=VERSIONED.keys())
async def test_a_version_is_written_over_the_one_that_it_was_computed_from_and_no_other(
    scene: Scene, make: Maker
) -> None:
    document, entry = make(scene), an_entry(scene)
    assert not await scene.store.write([a_put(document, 1)], entry), "there is none yet"
    assert await scene.store.write([a_put(document, 0)], entry)
    before = await stored(scene.store, scene)
    for wrong in (0, 2, 7):
        assert not await scene.store.write([a_put(document, wrong)], entry)
    assert await stored(scene.store, scene) == before
    assert await scene.store.write([a_put(document, 1)], entry)
    assert await scene.store.write([a_put(document, 2)], entry)


async def test_a_bulk_operation_is_created_once(scene: Scene) -> None:
    bulk = a_bulk(scene)
    assert await scene.store.write([a_put(bulk)], an_entry(scene))
    assert not await scene.store.write([a_put(replace(bulk, actor="another"))], an_entry(scene))
    assert await scene.store.get(Bulk, scene.org_id, bulk.bulk_id) == bulk
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 1


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
async def test_a_document_without_a_version_is_created_or_replaced(scene: Scene, make: Maker) -> None:
    document = make(scene)
    assert await put(scene.store, document)
    before = await stored(scene.store, scene)
    assert await put(scene.store, document)
    assert {**await stored(scene.store, scene), "routing": None} == before | {"routing": None}


@pytest.mark.parametrize("make", [*VERSIONED.values(), a_key, a_bulk], ids=[*VERSIONED, "key", "bulk"])
async def test_for_an_organization_that_does_not_exist_nothing_is_written(scene: Scene, make: Maker) -> None:
    before = await stored(scene.store, scene)
    with pytest.raises(NotFound):
        await scene.store.write([a_put(replace(make(scene), org_id=new_id()))], an_entry(scene))
    with pytest.raises(NotFound):
        await scene.store.write([a_put(make(scene))], replace(an_entry(scene), org_id=new_id()))
    assert await stored(scene.store, scene) == before


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
async def test_of_several_changes_all_are_made_or_none(scene: Scene, make: Maker) -> None:
    """The second change expects a version that does not exist."""
    before = await stored(scene.store, scene)
    late = Put(document=an_endpoint(scene.org_id), expected_version=5)
    for changes in ([a_put(make(scene)), late], [late, a_put(make(scene))]):
        assert not await scene.store.write(changes, an_entry(scene))
        assert await stored(scene.store, scene) == before
    gone = Delete(document=Silence(silence_id=new_id(), org_id=scene.org_id, from_at=0, until_at=1))
    assert not await scene.store.write([a_put(make(scene)), gone], an_entry(scene))
    assert await stored(scene.store, scene) == before


async def test_an_entry_can_be_written_by_itself(scene: Scene) -> None:
    version = await routing_versions(scene.store)
    assert await scene.store.write([], an_entry(scene))
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (an_entry(scene),)
    assert await scene.store.routing(version) == [], "it changes no endpoint"


async def test_what_is_full_takes_no_more_and_what_is_there_can_still_be_changed(scene: Scene) -> None:
    (rule,) = (make(scene) for name, make in VERSIONED.items() if name == "rule")
    assert await put(scene.store, rule, 0, entry=an_entry(scene), limit=1)
    with pytest.raises(Conflict):
        await put(scene.store, replace(rule, rule=Rule.OLDEST_DUE), 0, entry=an_entry(scene), limit=1)
    assert await put(scene.store, rule, 1, entry=an_entry(scene), limit=1)


@pytest.mark.parametrize("make", [VERSIONED["rule"], VERSIONED["silence"], VERSIONED["channel"], a_worker])
async def test_a_document_is_deleted_once(scene: Scene, make: Maker) -> None:
    document, before = make(scene), await stored(scene.store, scene)
    assert await scene.store.write([a_put(document)], an_entry(scene))
    assert await scene.store.write([Delete(document=document)], an_entry(scene)), "whatever its version"
    assert not await scene.store.write([Delete(document=document)], an_entry(scene))
    after = await stored(scene.store, scene)
    assert after | {"audit": None} == before | {"audit": None}
    assert len(after["audit"]) == 2


@pytest.mark.parametrize("kind", [Endpoint, Bulk, Delivery, DeliveryPayload, EventView, Entity])
async def test_what_does_not_exist_is_not_found(scene: Scene, kind: type[Any]) -> None:
    key: Any = ("protocol", "p1") if kind is Entity else new_id()
    for org_id in (scene.org_id, new_id()):
        with pytest.raises(NotFound):
            await scene.store.get(kind, org_id, key)


async def test_the_circuit_of_an_endpoint_that_never_failed_is_closed_and_of_another_organization_too(
    scene: Scene,
) -> None:
    endpoint_id = scene.endpoint.endpoint_id
    opened = Circuit(endpoint_id=endpoint_id, state=CircuitState.OPEN, changed_at=NOW)
    assert await scene.store.get(Circuit, scene.org_id, endpoint_id) == Circuit(endpoint_id=endpoint_id)
    assert await scene.store.put_circuit(opened, 0)
    for org_id in (scene.org_id, None):
        assert await scene.store.get(Circuit, org_id, endpoint_id) == replace(opened, version=1)
        assert await scene.store.get_many(Circuit, org_id, [endpoint_id, new_id()]) == [replace(opened, version=1)]
    assert await scene.store.get(Circuit, new_id(), endpoint_id) == Circuit(endpoint_id=endpoint_id)
    assert await scene.store.get_many(Circuit, new_id(), [endpoint_id]) == []


@pytest.mark.parametrize("kind", [Endpoint, Circuit, Delivery, DeliveryPayload, EventSummary])
async def test_several_are_read_at_once_each_once_and_only_those_that_exist(scene: Scene, kind: type[Any]) -> None:
    made = await scene.accept(3)
    await scene.store.put_circuit(Circuit(endpoint_id=scene.endpoint.endpoint_id), 0)
    ids = {
        Endpoint: [scene.endpoint.endpoint_id],
        Circuit: [scene.endpoint.endpoint_id],
        EventSummary: [one.event.event_id for one in made],
    }
    keys = ids.get(kind, [one.deliveries[0].delivery_id for one in made])
    assert len(await scene.store.get_many(kind, scene.org_id, [*keys, *keys, new_id()])) == len(keys)
    assert await scene.store.get_many(kind, scene.org_id, []) == []
    assert await scene.store.get_many(kind, new_id(), keys) == []


async def test_the_routing_is_read_only_if_it_changed(scene: Scene, other_store: Store) -> None:
    known = await routing_versions(scene.store)
    assert await other_store.routing(known) == []
    added, renamed = an_endpoint(scene.org_id), replace(scene.org, name="renamed")
    await put(scene.store, added, 0)
    (changed,) = await other_store.routing(known)
    assert [one.endpoint_id for one in changed.endpoints] == [added.endpoint_id]
    assert await put(scene.store, renamed)
    (again,) = await other_store.routing({scene.org_id: changed.version})
    assert (again.org, again.endpoints) == (renamed, ()), "its policies may have changed"


async def test_what_has_changed_since_a_version_includes_deleted_endpoints(scene: Scene) -> None:
    kept, gone = await scene.add_endpoint(), await scene.add_endpoint()
    known = await routing_versions(scene.store)
    await put(scene.store, replace(gone, state=EndpointState.DELETED))
    (routing,) = await scene.store.routing(known)
    assert [(one.endpoint_id, one.state) for one in routing.endpoints] == [(gone.endpoint_id, EndpointState.DELETED)]
    for unknown in (-1, routing.version + 1):
        (routing,) = await scene.store.routing({scene.org_id: unknown})
        assert list(routing.endpoints) == [scene.endpoint, kept]


async def test_a_change_of_one_organization_leaves_the_routing_of_the_others_as_it_is(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    before = await routing_versions(scene.store)
    await put(scene.store, an_endpoint(other.org_id), 0)
    newest = max(before.values())
    changes = await scene.store.find(None, RoutingChanges(since=newest))
    assert [org_id for org_id, _ in changes] == [scene.org_id, other.org_id], "in the order of their changes"
    assert changes[0] == (scene.org_id, before[scene.org_id]), "its own version is still the same"
    assert await scene.store.find(None, RoutingChanges()) == changes[1:], "only the last change"
    (routing,) = await scene.store.routing(before)
    assert routing.org == other
    assert await scene.store.routing({new_id(): -1}) == [], "an unknown organization has none"
