"""R8.3: every store answers every query that the model declares, and shows nothing of another organization."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import fields

from doorstep.errors import NotFound
from doorstep.model import alert, batch, bulk, entity, listing
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.model.entity import Entity, EntityChange, Phase
from doorstep.model.listing import BoundedQuery, Count, DeadLetterFilter, Page, PagedQuery
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import NOW, an_org, new_id
from tests.support.shortcuts import put

VALUES: dict[str, Any] = {
    "pipeline": "protocol",
    "entity_id": "p1",
    "endpoint_ids": (),
    "event_ids": (),
    "prefixes": ("dk_ab",),
    "name": "first",
    "digest": bytes(32),
    "hours": 3,
    "kind": "event",
    "tail": 0,
    "ranges": (),
    "limit": 10,
}
"""Query arguments by name. Any other required argument is an instant or an id."""
COUNTED = (
    listing.EventFilter,
    listing.InboxFilter,
    listing.RetryQueueFilter,
    listing.DeadLetterFilter,
    listing.WaitingDeliveries,
    entity.EntityFilter,
    bulk.BulkResults,
)
COUNTED_ONLY = (listing.WaitingDeliveries, bulk.BulkResults)
OF_ALL = (
    listing.Workers,
    listing.RejectedMessages,
    listing.RoutingChanges,
    entity.PipelineDeclarations,
    bulk.LiveBulks,
)
"""Lists that belong to no organization, or span all of them."""


def declared(base: type[Any]) -> list[type[Any]]:
    modules = (alert, batch, bulk, entity, listing)
    found = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return sorted((one for one in found if issubclass(one, base) and one is not base), key=lambda one: one.__name__)


def sample(query: type[Any]) -> Any:
    """A query with a value for each required argument."""
    needed = [one.name for one in fields(query) if one.required]
    return query(**{name: VALUES.get(name, _id_or_instant(name)) for name in needed})


def _id_or_instant(name: str) -> Any:
    return new_id() if name.endswith("_id") else NOW


PAGED = [one for one in declared(PagedQuery) if one not in COUNTED_ONLY]
BOUNDED = declared(BoundedQuery)


@pytest.mark.parametrize("query", PAGED, ids=lambda query: query.__name__)
async def test_an_organization_that_does_not_exist_has_empty_pages(scene: Scene, query: type[Any]) -> None:
    await fill(scene)
    for org_id in (new_id(), await another_org(scene)):
        if query is bulk.BulkFailures:
            with pytest.raises(NotFound):
                await scene.store.page(org_id, sample(query))
        else:
            assert await scene.store.page(org_id, sample(query)) == Page(())


@pytest.mark.parametrize("query", COUNTED, ids=lambda query: query.__name__)
async def test_an_organization_that_does_not_exist_has_nothing_to_count(scene: Scene, query: type[Any]) -> None:
    await fill(scene)
    for org_id in (new_id(), await another_org(scene)):
        if query is bulk.BulkResults:
            with pytest.raises(NotFound):
                await scene.store.count(org_id, sample(query))
        else:
            assert await scene.store.count(org_id, sample(query)) == Count(0, exact=True)


@pytest.mark.parametrize("query", BOUNDED, ids=lambda query: query.__name__)
async def test_an_organization_that_does_not_exist_has_empty_lists(scene: Scene, query: type[Any]) -> None:
    """A query about one thing raises NotFound instead."""
    await fill(scene)
    for org_id in (new_id(), await another_org(scene)):
        if query in (listing.DeliveryAttempts, listing.DeliveryHistory, entity.EntityHistory, bulk.BulkInFlight):
            with pytest.raises(NotFound):
                await scene.store.find(org_id, sample(query))
        elif query in OF_ALL:
            assert isinstance(await scene.store.find(org_id, sample(query)), list)
        elif query is not listing.Orgs and query not in EVERYBODYS:
            assert await scene.store.find(org_id, sample(query)) == []


EVERYBODYS = (
    listing.KeysByDigest,
    listing.FailingEndpoints,
    listing.BusiestEndpoints,
    alert.OrgsToReview,
    alert.OrgsWithIncidents,
)
"""The engine's own reads, which always span all organizations."""


@pytest.mark.parametrize("query", [*EVERYBODYS, *OF_ALL, listing.Orgs], ids=lambda query: query.__name__)
async def test_the_engine_reads_lists_of_all_organizations_at_once(scene: Scene, query: type[Any]) -> None:
    assert isinstance(await scene.store.find(None, sample(query)), list)


async def test_lists_about_one_thing_are_those_of_the_thing(store: Store) -> None:
    scene = await Scene(store).prepare()
    delivery_id, event_id, bulk_id = await fill(scene)
    (attempt,) = await store.find(scene.org_id, listing.DeliveryAttempts(delivery_id=delivery_id))
    assert attempt.delivery_id == delivery_id
    history = await store.find(scene.org_id, listing.DeliveryHistory(delivery_id=delivery_id))
    assert history[0].old_state is None
    (delivery,) = await store.find(scene.org_id, listing.EventDeliveries(event_id=event_id))
    assert delivery.delivery_id == delivery_id
    (change,) = await store.find(scene.org_id, entity.EntityHistory(pipeline="protocol", entity_id="p1"))
    assert change.new_status == "uploaded"
    assert await store.find(scene.org_id, bulk.BulkInFlight(bulk_id=bulk_id)) == []
    assert await store.count(scene.org_id, bulk.BulkResults(bulk_id=bulk_id)) == Count(0, exact=True)
    assert await store.page(scene.org_id, bulk.BulkFailures(bulk_id=bulk_id)) == Page(())


async def fill(scene: Scene) -> tuple[UUID, UUID, UUID]:
    """Create one of each: a dead letter, its event, a bulk operation and an entity."""
    (made,) = await scene.accept()
    await scene.kill(await scene.claim_one())
    operation = Bulk(
        bulk_id=new_id(),
        org_id=scene.org_id,
        kind=BulkKind.RETRY,
        selection=Selection(letters=DeadLetterFilter()),
        actor="ops",
        created_at=scene.now,
    )
    assert await put(scene.store, operation)
    thing = Entity(
        entity_id="p1",
        org_id=scene.org_id,
        pipeline="protocol",
        status="uploaded",
        phase=Phase.RUNNING,
        created_at=scene.now,
        changed_at=scene.now,
    )
    assert await scene.store.put_entity(thing, 0, EntityChange(scene.now, None, "uploaded", "started", None))
    return made.deliveries[0].delivery_id, made.event.event_id, operation.bulk_id


async def another_org(scene: Scene) -> UUID:
    other = an_org()
    await put(scene.store, other)
    return other.org_id
