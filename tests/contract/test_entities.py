"""R9.4: pipeline entities, as every store keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import DAY, SECOND
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.entity import (
    ENDED,
    AwaitingEntities,
    Entity,
    EntityChange,
    EntityFilter,
    EntityHistory,
    EntityStatuses,
    OrphanedEntities,
    Phase,
    PipelineDeclaration,
    PipelineDeclarations,
    StaleEntities,
)
from doorstep.model.event import EventView
from doorstep.model.listing import AuditFilter, Count
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.stores.store import Put, Store
from tests.contract.places import Refused, SqlPlace
from tests.contract.scene import WEEK, Scene
from tests.support.builders import NOW, an_org, new_id
from tests.support.shortcuts import post, put

PIPELINE = "protocol"


def an_entity(org_id: UUID, entity_id: str = "p1", **changes: Any) -> Entity:
    fields: dict[str, Any] = {"entity_id": entity_id, "org_id": org_id, "pipeline": PIPELINE, "status": "uploaded"}
    fields |= {"phase": Phase.RUNNING, "data": {"path": "a.txt"}, "created_at": NOW, "changed_at": NOW}
    return Entity(**fields | changes)


def a_message(org_id: UUID, event_id: UUID | None = None) -> OutboxMessage:
    return OutboxMessage(
        event_id=event_id or new_id(),
        org_id=org_id,
        event_type="protocol.extracting",
        payload=b'{"protocol_id": "p1"}',
        created_at=NOW,
        options=OutboxOptions(correlation_id="p1"),
    )


async def keep(scene: Scene, *entities: Entity) -> list[Entity]:
    for entity in entities:
        assert await scene.store.put_entity(entity, 0)
    return [replace(entity, version=1) for entity in entities]


async def ids(scene: Scene, limit: int = 50, **wanted: Any) -> list[str]:
    """The entity ids on all pages of a list."""
    cursor, found = None, []
    while True:
        page = await scene.store.page(scene.org_id, EntityFilter(pipeline=PIPELINE, **wanted), cursor, limit)
        assert len(page.items) <= limit
        found += [one.entity_id for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


# -- writing -----------------------------------------------------------------------------------------------


async def test_an_entity_reads_as_it_was_written(scene: Scene) -> None:
    entity = an_entity(
        scene.org_id,
        data={"text": "nul \0, ünï", "n": [1, 2.5, None, True], "deep": {"a": {}}},
        error_reason="It could not be read.",
        metadata={"error": {"code": "X"}},
        event_id=new_id(),
    )
    (kept,) = await keep(scene, entity)
    assert await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1")) == kept


async def test_two_entities_may_have_the_same_id_in_other_pipelines_and_organizations(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    await keep(scene, an_entity(scene.org_id), an_entity(scene.org_id, pipeline="other"), an_entity(other.org_id))
    assert not await scene.store.put_entity(an_entity(scene.org_id), 0)


async def test_a_write_over_another_version_keeps_nothing_of_it(scene: Scene) -> None:
    (kept,) = await keep(scene, an_entity(scene.org_id))
    line = AuditEntry(at=NOW, org_id=scene.org_id, actor="ops", action="entity.retry", subjects=("p1",), result="x")
    change = EntityChange(NOW, "uploaded", "extracting", "attempt 1", None)
    late = replace(kept, status="extracting")
    for version in (0, 2, 7):
        assert not await scene.store.put_entity(late, version, change, [a_message(scene.org_id)], line)
    assert await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1")) == kept
    assert await scene.store.find(scene.org_id, EntityHistory(pipeline=PIPELINE, entity_id="p1")) == []
    assert await scene.store.outbox(10) == []
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == ()


async def test_the_entity_its_history_its_events_and_the_audit_are_written_together(scene: Scene) -> None:
    message = a_message(scene.org_id)
    change = EntityChange(NOW, None, "uploaded", "started", message.event_id)
    line = AuditEntry(at=NOW, org_id=scene.org_id, actor="ops", action="entity.retry", subjects=("p1",), result="x")
    assert await scene.store.put_entity(an_entity(scene.org_id), 0, change, [message], line)
    assert await scene.store.find(scene.org_id, EntityHistory(pipeline=PIPELINE, entity_id="p1")) == [change]
    assert await scene.store.outbox(10) == [message]
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (line,)


async def test_of_writers_at_once_one_wins(scene: Scene, other_store: Store) -> None:
    created = await asyncio.gather(
        *(one.put_entity(an_entity(scene.org_id), 0) for one in [scene.store, other_store] * 5)
    )
    assert sum(created) == 1
    kept = await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1"))
    written = await asyncio.gather(
        *(
            one.put_entity(replace(kept, status=f"s{n}"), 1, EntityChange(NOW, "uploaded", f"s{n}", "", None))
            for n, one in enumerate([scene.store, other_store] * 5)
        )
    )
    assert sum(written) == 1
    winner = f"s{written.index(True)}"
    assert (await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1"))).status == winner
    (line,) = await scene.store.find(scene.org_id, EntityHistory(pipeline=PIPELINE, entity_id="p1"))
    assert line.new_status == winner


async def test_history_is_read_in_the_order_of_the_changes(scene: Scene) -> None:
    (entity,) = await keep(scene, an_entity(scene.org_id))
    changes = [EntityChange(NOW - n, f"s{n}", f"s{n + 1}", f"because {n}", new_id()) for n in range(12)]
    for change in changes:
        assert await scene.store.put_entity(entity, entity.version, change)
        entity = replace(entity, version=entity.version + 1)
    assert await scene.store.find(scene.org_id, EntityHistory(pipeline=PIPELINE, entity_id="p1")) == changes


async def test_a_stage_may_fail_with_any_text_and_an_id_must_be_storable(scene: Scene) -> None:
    await keep(scene, an_entity(scene.org_id, error_reason="a\0b\ud800"))
    assert (await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1"))).error_reason == "a\ufffdb\ufffd"
    with pytest.raises(InvalidInput, match="entity_id"):
        await scene.store.put_entity(an_entity(scene.org_id, "a\0b"), 0)


def reads(scene: Scene, org_id: UUID, pipeline: str, entity_id: str) -> list[Awaitable[object]]:
    history = EntityHistory(pipeline=pipeline, entity_id=entity_id)
    return [scene.store.get(Entity, org_id, (pipeline, entity_id)), scene.store.find(org_id, history)]


async def test_what_is_unknown_and_what_is_another_organizations_are_the_same(scene: Scene) -> None:
    await keep(scene, an_entity(scene.org_id))
    for where in ((new_id(), PIPELINE, "p1"), (scene.org_id, "other", "p1"), (scene.org_id, PIPELINE, "p2")):
        for reading in reads(scene, *where):
            with pytest.raises(NotFound, match=where[2]):
                await reading
    with pytest.raises(NotFound, match="organization"):
        await scene.store.put_entity(an_entity(new_id()), 0)


async def test_the_database_itself_refuses_a_phase_that_there_is_not(sql_place: SqlPlace, sql_scene: Scene) -> None:
    await keep(sql_scene, an_entity(sql_scene.org_id))
    with pytest.raises(Refused):
        await sql_place.execute("UPDATE doorstep_entities SET phase = 'lost'")


# -- lists -------------------------------------------------------------------------------------------------


async def test_a_list_goes_through_all_newest_first_and_only_in_its_pipeline(scene: Scene) -> None:
    await keep(scene, *(an_entity(scene.org_id, f"p{n}") for n in range(7)))
    await keep(scene, an_entity(scene.org_id, pipeline="other"))
    assert await ids(scene, limit=3) == [f"p{n}" for n in reversed(range(7))]
    assert await ids(scene, limit=7) == await ids(scene)
    assert (await scene.store.page(new_id(), EntityFilter(pipeline=PIPELINE))).items == ()


async def test_a_list_of_one_status_has_only_that(scene: Scene) -> None:
    await keep(scene, *(an_entity(scene.org_id, f"p{n}", status="odd" if n % 2 else "even") for n in range(6)))
    assert await ids(scene, status="odd", limit=2) == ["p5", "p3", "p1"]
    assert await ids(scene, status="none") == []


async def test_archived_ones_are_hidden_shown_or_alone_and_untouched_dead_ones_are_among_them(scene: Scene) -> None:
    dead = {"status": "dead_letter", "phase": Phase.DEAD}
    await keep(
        scene,
        an_entity(scene.org_id, "running"),
        an_entity(scene.org_id, "old", **dead, changed_at=NOW - WEEK - 1),
        an_entity(scene.org_id, "fresh", **dead, changed_at=NOW - WEEK),
        an_entity(scene.org_id, "archived", status="archived", phase=Phase.ARCHIVED, changed_at=NOW),
    )
    wanted = {"archived_before": NOW - WEEK}
    assert await ids(scene, archived=False, **wanted) == ["fresh", "running"]
    assert await ids(scene, archived=True, **wanted) == ["archived", "old"]
    assert await ids(scene, archived=None, **wanted) == ["archived", "fresh", "old", "running"]
    assert await ids(scene, archived=False, status="dead_letter", **wanted) == ["fresh"]
    assert await ids(scene, archived=None, status="dead_letter", **wanted) == ["fresh", "old"]


async def test_each_list_is_counted_as_far_as_was_asked(scene: Scene) -> None:
    dead = {"status": "dead_letter", "phase": Phase.DEAD}
    await keep(
        scene,
        *(an_entity(scene.org_id, f"p{n}") for n in range(4)),
        an_entity(scene.org_id, "old", **dead, changed_at=NOW - WEEK - 1),
        an_entity(scene.org_id, "fresh", **dead),
        an_entity(scene.org_id, "archived", status="archived", phase=Phase.ARCHIVED),
        an_entity(scene.org_id, pipeline="other"),
    )
    asked: list[tuple[dict[str, Any], int]] = [
        ({"status": "uploaded"}, 4),
        ({"status": "dead_letter"}, 1),
        ({"status": "dead_letter", "archived": None}, 2),
        ({"archived": True}, 2),
        ({"archived": None}, 7),
        ({}, 5),
        ({"status": "complete"}, 0),
    ]
    wanted = [EntityFilter(pipeline=PIPELINE, archived_before=NOW - WEEK, **fields) for fields, _ in asked]
    counts = [await scene.store.count(scene.org_id, one) for one in wanted]
    assert counts == [Count(number, exact=True) for _, number in asked]
    assert await scene.store.count(scene.org_id, wanted[0], 4) == Count(4, exact=True)
    assert await scene.store.count(scene.org_id, wanted[0], 3) == Count(3, exact=False)
    assert await scene.store.count(new_id(), wanted[0]) == Count(0, exact=True)
    with pytest.raises(InvalidInput, match="status"):
        await scene.store.count(scene.org_id, EntityFilter(pipeline=PIPELINE, status="a\0"))


async def test_a_cursor_of_another_list_is_refused(scene: Scene) -> None:
    for cursor in ("zz", "1.2", "f" * 32):
        with pytest.raises(InvalidInput, match="cursor"):
            await scene.store.page(scene.org_id, EntityFilter(pipeline=PIPELINE), cursor)
    with pytest.raises(InvalidInput, match="status"):
        await scene.store.page(scene.org_id, EntityFilter(pipeline=PIPELINE, status="a\0"))


# -- what the reconciler looks for -------------------------------------------------------------------------


async def orphaned(scene: Scene, *endpoints: Endpoint, limit: int = 50) -> list[str]:
    cursor, found = None, []
    while True:
        page = await scene.store.page(
            scene.org_id,
            OrphanedEntities(pipeline=PIPELINE, endpoint_ids=tuple(one.endpoint_id for one in endpoints)),
            cursor,
            limit,
        )
        found += [one.entity_id for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


async def test_an_entity_is_adrift_unless_its_event_is_posted_or_owed(scene: Scene) -> None:
    (waiting,) = await scene.accept(due_at=scene.now + DAY)
    (tried,) = await scene.accept()
    (claim,) = await scene.claim(1)
    assert claim.event_id == tried.event.event_id
    dead = await scene.store.get(Delivery, scene.org_id, await scene.in_state(DeliveryState.DEAD))
    message = a_message(scene.org_id)
    await post(scene.store, [message])
    for name, event_id in {
        "posted": message.event_id,
        "waiting": waiting.event.event_id,
        "tried": tried.event.event_id,
        "dead": dead.event_id,
        "gone": new_id(),
        "none": None,
    }.items():
        await keep(scene, an_entity(scene.org_id, name, event_id=event_id))
    await keep(scene, an_entity(scene.org_id, "resting", phase=Phase.RESTING, event_id=new_id()))
    assert await orphaned(scene, scene.endpoint) == ["dead", "gone", "none"]
    assert await orphaned(scene, scene.endpoint, limit=1) == ["dead", "gone", "none"]
    await scene.store.reject(message.event_id, "nobody wants it", scene.now)
    assert await orphaned(scene, scene.endpoint) == ["posted", "dead", "gone", "none"]


async def test_what_another_endpoint_owes_does_not_carry_an_entity(scene: Scene) -> None:
    other = await scene.add_endpoint(name="other")
    (submission,) = await scene.accept(endpoints=[scene.endpoint, other], due_at=scene.now)
    mine = next(one for one in submission.deliveries if one.endpoint_id == scene.endpoint.endpoint_id)
    await keep(scene, an_entity(scene.org_id, event_id=submission.event.event_id))
    assert await orphaned(scene, scene.endpoint) == []
    await scene.act(ActionKind.SKIP, mine.delivery_id)
    assert await orphaned(scene, scene.endpoint) == ["p1"]
    assert await orphaned(scene, scene.endpoint, other) == []
    assert await orphaned(scene) == ["p1"]


async def test_running_entities_are_found_by_their_present_event(scene: Scene) -> None:
    events = [new_id() for _ in range(3)]
    await keep(scene, *(an_entity(scene.org_id, f"p{n}", event_id=event) for n, event in enumerate(events)))
    await keep(scene, an_entity(scene.org_id, "resting", phase=Phase.RESTING, event_id=events[0]))
    found = await scene.store.find(
        scene.org_id, AwaitingEntities(pipeline=PIPELINE, event_ids=(events[0], events[2], new_id()))
    )
    assert sorted(one.entity_id for one in found) == ["p0", "p2"]
    assert await scene.store.find(scene.org_id, AwaitingEntities(pipeline=PIPELINE, event_ids=())) == []


async def test_untouched_dead_ones_are_found_oldest_first(scene: Scene) -> None:
    dead = {"status": "dead_letter", "phase": Phase.DEAD}
    await keep(
        scene,
        an_entity(scene.org_id, "b", **dead, changed_at=NOW - 2 * SECOND),
        an_entity(scene.org_id, "a", **dead, changed_at=NOW - 3 * SECOND),
        an_entity(scene.org_id, "fresh", **dead, changed_at=NOW),
        an_entity(scene.org_id, "running", changed_at=NOW - 9 * SECOND),
    )
    assert [
        one.entity_id
        for one in await scene.store.find(scene.org_id, StaleEntities(pipeline=PIPELINE, dead_before=NOW, limit=10))
    ] == ["a", "b"]
    assert [
        one.entity_id
        for one in await scene.store.find(scene.org_id, StaleEntities(pipeline=PIPELINE, dead_before=NOW, limit=1))
    ] == ["a"]


# -- removing ----------------------------------------------------------------------------------------------


def a_line(scene: Scene) -> AuditEntry:
    return AuditEntry(at=NOW, org_id=scene.org_id, actor="ops", action="entity.delete", subjects=("p1",), result="x")


async def test_a_deleted_entity_is_gone_with_its_history_and_leaves_its_audit_line(scene: Scene) -> None:
    change = EntityChange(NOW, None, "uploaded", "started", None)
    assert await scene.store.put_entity(an_entity(scene.org_id), 0, change)
    (other,) = await keep(scene, an_entity(scene.org_id, "p2"))
    entity = await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1"))
    assert await scene.store.delete_entity(entity, a_line(scene))
    for reading in reads(scene, scene.org_id, PIPELINE, "p1"):
        with pytest.raises(NotFound):
            await reading
    assert await scene.store.get(Entity, scene.org_id, (PIPELINE, "p2")) == other
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (a_line(scene),)
    assert not await scene.store.delete_entity(entity, a_line(scene)), "it is gone already"


async def test_an_entity_that_changed_meanwhile_is_not_deleted_over_somebodys_head(scene: Scene) -> None:
    (kept,) = await keep(scene, an_entity(scene.org_id))
    assert await scene.store.put_entity(replace(kept, status="extracting"), 1)
    assert not await scene.store.delete_entity(kept, a_line(scene))
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == ()


async def test_with_an_entity_goes_what_its_arrival_gave_and_only_with_it(scene: Scene) -> None:
    (arrival,) = await scene.accept()
    event_id = arrival.event.event_id
    (kept,) = await keep(scene, an_entity(scene.org_id))
    assert await scene.store.put_entity(replace(kept, status="extracting"), 1)
    assert await scene.store.delete_entity(kept, a_line(scene), event_id) is None
    assert (await scene.store.get(EventView, scene.org_id, event_id)).event == arrival.event, "nothing was deleted"
    present = await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1"))
    claim = await scene.claim_one()
    with pytest.raises(Conflict, match="in progress"):
        await scene.store.delete_entity(present, a_line(scene), event_id)
    assert await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1")) == present, "neither goes without the other"
    await scene.deliver(claim)
    for _ in range(2):
        assert await scene.store.delete_entity(present, a_line(scene), event_id) == Moved()
        with pytest.raises(NotFound):
            await scene.store.get(EventView, scene.org_id, event_id)
        (present,) = await keep(scene, an_entity(scene.org_id))  # the second time, its event is already deleted
    lines = (await scene.store.page(scene.org_id, AuditFilter())).items
    assert sorted(line.action for line in lines) == ["entity.delete", "entity.delete", "event.delete"]


async def test_a_deleted_arrival_that_still_waited_is_told_as_cancelled(scene: Scene) -> None:
    (arrival,) = await scene.accept()
    (kept,) = await keep(scene, an_entity(scene.org_id))
    moved = await scene.store.delete_entity(kept, a_line(scene), arrival.event.event_id)
    assert moved is not None and [one.new_state for one in moved.moves] == [DeliveryState.CANCELLED]


async def test_what_was_computed_from_a_deleted_entity_is_not_written_over_a_later_one_of_its_name(
    scene: Scene,
) -> None:
    (former,) = await keep(scene, an_entity(scene.org_id))
    assert await scene.store.delete_entity(former, a_line(scene))
    (later,) = await keep(scene, an_entity(scene.org_id, created_at=NOW + 1))
    assert not await scene.store.put_entity(replace(former, status="extracting"), former.version)
    assert not await scene.store.delete_entity(former, a_line(scene))
    assert await scene.store.get(Entity, scene.org_id, (PIPELINE, "p1")) == later
    assert await scene.store.find(scene.org_id, EntityHistory(pipeline=PIPELINE, entity_id="p1")) == []


async def clean(
    scene: Scene, status: str, cursor: str | None = None, phases: Collection[Phase] = ENDED
) -> tuple[int, str | None]:
    return await scene.store.clean_entities(scene.org_id, PIPELINE, status, phases, NOW + SECOND, cursor, 2)


async def test_only_what_had_its_status_for_so_long_is_cleaned_away_a_window_at_a_time(scene: Scene) -> None:
    old = [
        an_entity(scene.org_id, f"p{n}", status="complete", phase=Phase.RESTING, changed_at=NOW + (n % 2) * DAY)
        for n in range(6)
    ]
    other = an_entity(scene.org_id, "gate", status="pending_review", phase=Phase.RESTING)
    young = an_entity(
        scene.org_id, "young", status="complete", phase=Phase.RESTING, created_at=NOW + DAY, changed_at=NOW + DAY
    )
    await keep(scene, *old, other, young)
    await keep(scene, replace(old[0], pipeline="other"))
    removed, cursor, rounds = 0, None, 0
    while True:
        count, cursor = await clean(scene, "complete", cursor)
        removed, rounds = removed + count, rounds + 1
        if cursor is None:
            break
    assert (removed, rounds) == (3, 4)
    assert await ids(scene) == ["young", "gate", "p5", "p3", "p1"]
    assert (await scene.store.get(Entity, scene.org_id, ("other", "p0"))).status == "complete"


async def test_only_what_is_in_one_of_the_phases_is_cleaned_away_whatever_its_status_is_called(scene: Scene) -> None:
    running = an_entity(scene.org_id, "running", status="complete")
    await keep(scene, running, an_entity(scene.org_id, "resting", status="complete", phase=Phase.RESTING))
    assert (await clean(scene, "complete"))[0] == 1
    assert await ids(scene) == ["running"]
    assert (await clean(scene, "complete", phases=frozenset(Phase)))[0] == 1
    assert await ids(scene) == []


async def test_the_statuses_of_a_pipeline_are_those_that_its_entities_have(scene: Scene) -> None:
    statuses = ["complete", "uploaded", "complete", "archived"]
    await keep(scene, *(an_entity(scene.org_id, f"p{n}", status=status) for n, status in enumerate(statuses)))
    await keep(scene, an_entity(scene.org_id, "p1", pipeline="other", status="elsewhere"))
    assert await scene.store.find(scene.org_id, EntityStatuses(pipeline=PIPELINE)) == [
        "archived",
        "complete",
        "uploaded",
    ]
    assert await scene.store.find(new_id(), EntityStatuses(pipeline=PIPELINE)) == []


async def test_a_store_knows_when_each_pipeline_was_last_declared(scene: Scene, other_store: Store) -> None:
    neighbour = an_org()
    await put(scene.store, neighbour)
    first = PipelineDeclaration(org_id=scene.org_id, pipeline="protocol", declared_at=NOW)
    second = PipelineDeclaration(org_id=neighbour.org_id, pipeline="pro_tocol", declared_at=NOW)
    assert await scene.store.find(None, PipelineDeclarations()) == []
    assert await scene.store.write([Put(document=first), Put(document=second)])
    later = replace(first, declared_at=NOW + SECOND)
    await asyncio.gather(put(scene.store, later), put(other_store, later))
    found = await scene.store.find(None, PipelineDeclarations())
    assert {one.pipeline: one for one in found} == {"protocol": later, "pro_tocol": second}


async def test_a_key_is_not_given_again_to_another_entity_in_the_middle_of_a_list(scene: Scene) -> None:
    first, _ = await keep(scene, an_entity(scene.org_id, "p1"), an_entity(scene.org_id, "p2"))
    await scene.store.delete_entity(first, a_line(scene))
    await keep(scene, an_entity(scene.org_id, "p3"))
    assert await ids(scene, limit=1) == ["p3", "p2"]
