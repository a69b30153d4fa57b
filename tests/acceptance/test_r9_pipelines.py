"""R9.4: pipelines, the protocols profile."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import sys

import asyncpg
import pytest

from doorstep import Entity, Permanent, Pipeline, Transient
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.encryption import new_secret_key
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model import entity as model
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import AuditFilter
from doorstep.telemetry.facts import EntityTransition
from tests.acceptance.protocols import Held, Protocols, failing
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scene import Scene, until

DAY = 86_400


@pytest.fixture
async def protocols(scene: Scene) -> Protocols:
    made = Protocols(scene)
    await made.open()
    return made


def broken(_: Entity) -> None:
    raise ValueError("the scan is blurred")


# -- success -----------------------------------------------------------------------------------------------


async def test_an_entity_goes_through_its_stages_to_the_gate_and_is_complete_once_approved(
    protocols: Protocols,
) -> None:
    protocols.does["extracting"] = lambda entity: {**entity.data, "text": "hello"}
    entity = await protocols.start(path="a.txt")
    assert (entity.status, entity.entity_id) == ("uploaded", "p1")
    waiting = await protocols.until("pending_review")
    assert waiting.data == {"path": "a.txt", "text": "hello"}
    assert (waiting.error_reason, waiting.metadata) == (None, {})
    await protocols.pipeline.approve("p1", "mary")
    assert (await protocols.until("complete")).data == waiting.data
    assert await protocols.path() == ["uploaded", "extracting", "grounding", "pending_review", "complete"]
    assert protocols.seen == [("extracting", "p1"), ("grounding", "p1")]


async def test_the_history_tells_when_why_and_by_which_event(protocols: Protocols) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    await protocols.pipeline.approve("p1", "mary")
    lines = list(await protocols.pipeline.history("p1"))
    assert [line.reason for line in lines] == [
        "started",
        "attempt 1",
        "extracting done",
        "grounding done",
        "approved by mary",
    ]
    first, begun, extracted, grounded, approved = lines
    assert first.event_id == begun.event_id == extracted.event_id != grounded.event_id
    assert approved.event_id is None
    event = await protocols.doorstep.components.reader.event(DEFAULT_ORG, extracted.event_id)  # type: ignore[arg-type]
    assert (event.event.event_type, event.event.correlation_id) == ("protocol.extracting", "p1")


async def test_every_change_of_status_is_logged(protocols: Protocols) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    told = [(fact.old_status, fact.new_status) for fact in protocols.scene.heard(EntityTransition)]
    assert told == [
        (None, "uploaded"),
        ("uploaded", "extracting"),
        ("extracting", "grounding"),
        ("grounding", "pending_review"),
    ]


async def test_a_new_entity_has_an_id_of_its_own_and_one_that_exists_is_not_started_twice(
    protocols: Protocols,
) -> None:
    made = await asyncio.gather(*(protocols.pipeline.start({}) for _ in range(5)))
    assert len({one.entity_id for one in made}) == 5
    await protocols.start()
    with pytest.raises(Conflict, match="protocol p1"):
        await protocols.start()
    with pytest.raises(InvalidInput, match="entity_id"):
        await protocols.start("../etc")
    with pytest.raises(InvalidInput, match="data"):
        await protocols.pipeline.start({"x": object()})


async def test_a_rejected_entity_is_a_dead_letter_with_the_reason(protocols: Protocols) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    await protocols.pipeline.reject("p1", "mary", "page 2 is missing")
    entity = await protocols.pipeline.entity("p1")
    assert (entity.status, entity.error_reason) == ("dead_letter", "rejected by mary: page 2 is missing")
    assert entity.metadata["error"]["code"] == "REJECTED"


async def test_only_what_waits_at_a_gate_is_approved_or_rejected(protocols: Protocols) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    await protocols.pipeline.approve("p1", "mary")
    for decide in (protocols.pipeline.approve, protocols.pipeline.reject):
        with pytest.raises(Conflict, match="is complete; a decision is possible only at pending_review"):
            await decide("p1", "mary")
        with pytest.raises(NotFound):
            await decide("unknown", "mary")


# -- failures ----------------------------------------------------------------------------------------------


async def test_a_stage_that_fails_is_tried_again_at_once_and_the_error_goes_with_its_success(
    protocols: Protocols,
) -> None:
    tries: list[int] = []

    def second_time_lucky(_: Entity) -> None:
        tries.append(1)
        if len(tries) < 2:
            raise Transient("BLURRED", "The scan is blurred.")

    protocols.does["extracting"] = second_time_lucky
    await protocols.start()
    entity = await protocols.until("pending_review")
    assert (entity.error_reason, entity.metadata) == (None, {})
    assert await protocols.path() == [
        "uploaded",
        "extracting",
        "extraction_failed",
        "extracting",
        "grounding",
        "pending_review",
    ]


async def test_after_three_failures_it_is_a_dead_letter_with_reason_and_error(protocols: Protocols) -> None:
    protocols.does["grounding"] = failing(Transient("NO_SOURCE", "No source was found."))
    await protocols.start()
    entity = await protocols.until("dead_letter")
    assert [stage for stage, _ in protocols.seen].count("grounding") == 3
    assert entity.error_reason == "No source was found."
    error = entity.metadata["error"]
    assert (error["category"], error["reason"], error["retry_count"]) == ("pipeline_failed", entity.error_reason, 2)
    assert (error["kind"], error["code"], error["attempt_count"]) == ("transient", "NO_SOURCE", 3)
    path = await protocols.path()
    assert path[2:] == ["grounding", "grounding_failed"] + ["grounding", "grounding_failed"] * 2 + ["dead_letter"]


async def test_a_permanent_failure_is_a_dead_letter_at_once(protocols: Protocols) -> None:
    protocols.does["extracting"] = failing(Permanent("INVALID_FORMAT", "This is no document."))
    await protocols.start()
    entity = await protocols.until("dead_letter")
    assert protocols.seen == [("extracting", "p1")]
    assert (entity.error_reason, entity.metadata["error"]["kind"]) == ("This is no document.", "permanent")


async def test_the_reason_never_quotes_what_an_unexpected_error_said(protocols: Protocols) -> None:
    protocols.does["extracting"] = broken
    await protocols.start()
    entity = await protocols.until("dead_letter")
    assert entity.error_reason == "The handler raised ValueError."
    assert entity.metadata["error"]["code"] == "HANDLER_ERROR"
    assert "blurred" not in str(entity)


async def test_what_a_failing_stage_did_to_the_data_is_not_kept(protocols: Protocols) -> None:
    def spoil(entity: Entity) -> None:
        entity.data["spoilt"] = True
        raise Permanent("NO", "No.")

    protocols.does["extracting"] = spoil
    await protocols.start(path="a")
    assert (await protocols.until("dead_letter")).data == {"path": "a"}


async def test_a_stage_that_returns_no_mapping_is_a_dead_letter_that_says_so(protocols: Protocols) -> None:
    protocols.does["extracting"] = lambda _: "text"  # type: ignore[assignment,return-value]
    await protocols.start()
    entity = await protocols.until("dead_letter")
    assert entity.error_reason == "Stage extracting returned a str; it must return a mapping or None."


async def test_one_document_that_cannot_be_read_holds_up_no_other(protocols: Protocols) -> None:
    protocols.does["extracting"] = lambda entity: broken(entity) if entity.data["bad"] else None
    await asyncio.gather(*(protocols.start(f"p{n}", bad=n < 8) for n in range(16)))
    for n in range(16):
        await protocols.until("dead_letter" if n < 8 else "pending_review", entity_id=f"p{n}")


async def test_a_stage_out_of_time_is_tried_again_and_then_a_dead_letter(scene: Scene) -> None:
    protocols = Protocols(scene, timeout_seconds=0.2)
    await protocols.open()
    protocols.does["extracting"] = Held()
    await protocols.start()
    entity = await protocols.until("dead_letter")
    assert entity.metadata["error"]["code"] == "TIMEOUT"
    assert [stage for stage, _ in protocols.seen] == ["extracting"] * 3


async def test_a_stage_out_of_time_has_failed_until_it_is_tried_again_and_what_it_returns_then_is_late(
    scene: Scene,
) -> None:
    protocols = Protocols(scene, timeout_seconds=0.2, policy=[300])
    await protocols.open()
    slow = Held(lambda _: {"from": "beyond"})
    protocols.does["extracting"] = slow
    await protocols.start()
    failed = await protocols.until("extraction_failed")
    assert (failed.metadata["error"]["code"], failed.metadata["error"]["attempt_count"]) == ("TIMEOUT", 1)
    assert failed.error_reason
    slow.go.set()
    await until(slow.done.is_set)
    await asyncio.sleep(0.2)
    assert await protocols.pipeline.entity("p1") == failed
    protocols.does["extracting"] = lambda _: {"from": "the second try"}
    scene.leap(331)
    done = await protocols.until("pending_review")
    assert (done.data, done.error_reason) == ({"from": "the second try"}, None)


async def test_an_entity_whose_delivery_an_operator_skips_is_a_dead_letter(protocols: Protocols) -> None:
    (endpoint,) = [one for one in await protocols.doorstep.endpoints() if one.name == "protocol.extracting"]
    await protocols.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    entity = await protocols.start()
    assert entity.event_id is not None

    async def owed() -> bool:
        return bool(await protocols.doorstep.components.reader.deliveries(DEFAULT_ORG, entity.event_id))  # type: ignore[arg-type]

    await until(owed, "its delivery")
    (delivery,) = await protocols.doorstep.components.reader.deliveries(DEFAULT_ORG, entity.event_id)
    await protocols.doorstep.components.deliveries.act(ActionKind.SKIP, DEFAULT_ORG, [delivery.delivery_id], "ops")
    dead = await protocols.until("dead_letter")
    assert dead.metadata["error"]["code"] == "SKIPPED"
    assert await protocols.path() == ["uploaded", "dead_letter"]


async def test_an_entity_whose_stage_was_deleted_is_a_dead_letter(protocols: Protocols) -> None:
    (endpoint,) = [one for one in await protocols.doorstep.endpoints() if one.name == "protocol.grounding"]
    held = Held()
    protocols.does["extracting"] = held
    await protocols.start()
    await until(held.begun.is_set)
    await protocols.doorstep.components.endpoints.delete(DEFAULT_ORG, endpoint.endpoint_id, "ops")
    held.go.set()
    await protocols.until("grounding")

    async def swept() -> bool:
        """Let ten seconds pass, after which the reconciler examines the running entities."""
        protocols.scene.leap(10)
        protocols.doorstep.components.pipeline_reconciler.wake.set()
        return (await protocols.pipeline.entity("p1")).status == "dead_letter"

    await until(swept, "a dead letter")
    assert (await protocols.pipeline.entity("p1")).metadata["error"]["code"] == "LOST"


async def test_a_dead_delivery_that_an_operator_retries_carries_its_entity_on(protocols: Protocols) -> None:
    protocols.does["extracting"] = broken
    entity = await protocols.start()
    await protocols.until("dead_letter")
    protocols.does["extracting"] = lambda _: None
    (delivery,) = await protocols.doorstep.components.reader.deliveries(DEFAULT_ORG, entity.event_id)  # type: ignore[arg-type]
    assert delivery.state is DeliveryState.DEAD
    await protocols.doorstep.components.deliveries.act(ActionKind.RETRY, DEFAULT_ORG, [delivery.delivery_id], "ops")
    protocols.scene.leap(6)
    assert (await protocols.until("pending_review")).error_reason is None


# -- retry -------------------------------------------------------------------------------------------------


async def test_a_retry_puts_a_dead_letter_back_to_the_start_without_its_error_and_with_a_new_event(
    protocols: Protocols,
) -> None:
    protocols.does["extracting"] = broken
    started = await protocols.start()
    dead = await protocols.until("dead_letter")
    held = Held()
    protocols.does["extracting"] = held
    again = await protocols.pipeline.retry("p1", "ops", "a better scan")
    assert (again.status, again.error_reason, again.metadata) == ("uploaded", None, {})
    assert again.event_id not in (None, started.event_id, dead.event_id)
    held.go.set()
    await protocols.until("pending_review")
    (line,) = (await protocols.doorstep.components.store.page(DEFAULT_ORG, AuditFilter(action="entity.retry"))).items
    assert (line.actor, line.subjects, line.result, line.reason) == (
        "ops",
        ("protocol", "p1"),
        "uploaded",
        "a better scan",
    )


async def test_what_is_on_its_way_at_a_gate_or_complete_is_not_retried(protocols: Protocols) -> None:
    held = Held()
    protocols.does["extracting"] = held
    await protocols.start()
    await until(held.begun.is_set)
    with pytest.raises(Conflict, match="protocol p1 is extracting and cannot be retried"):
        await protocols.pipeline.retry("p1", "ops")
    held.go.set()
    await protocols.until("pending_review")
    with pytest.raises(Conflict, match="is pending_review"):
        await protocols.pipeline.retry("p1", "ops")
    with pytest.raises(NotFound):
        await protocols.pipeline.retry("unknown", "ops")


async def test_an_older_event_that_is_still_being_tried_does_not_disturb_the_new_round(scene: Scene) -> None:
    protocols = Protocols(scene, timeout_seconds=0.3)
    await protocols.open()
    slow = Held(lambda _: {"from": "the old round"})
    protocols.does["extracting"] = slow
    await protocols.start()
    await protocols.until("dead_letter")
    protocols.does["extracting"] = lambda _: {"from": "the new round"}
    await protocols.pipeline.retry("p1", "ops")
    entity = await protocols.until("pending_review")
    lines = await protocols.path()
    slow.go.set()
    await until(slow.done.is_set)
    await asyncio.sleep(0.2)
    assert await protocols.pipeline.entity("p1") == entity
    assert entity.data == {"from": "the new round"}
    assert await protocols.path() == lines


async def test_a_try_that_was_given_up_changes_nothing_once_the_next_one_has_begun(scene: Scene) -> None:
    protocols = Protocols(scene, timeout_seconds=0.5)
    await protocols.open()
    first, second = Held(lambda _: {"from": "first"}), Held(lambda _: {"from": "second"})
    protocols.does["extracting"] = lambda entity: (first if not first.begun.is_set() else second)(entity)
    await protocols.start()
    await until(second.begun.is_set)
    first.go.set()
    await until(first.done.is_set)
    await asyncio.sleep(0.1)
    assert (await protocols.pipeline.entity("p1")).status == "extracting"
    second.go.set()
    assert (await protocols.until("pending_review")).data == {"from": "second"}


async def test_a_try_that_comes_back_when_everything_is_closed_opens_nothing(scene: Scene) -> None:
    protocols = Protocols(scene, timeout_seconds=0.2)
    doorstep = await protocols.open()
    slow = Held(lambda _: {"from": "beyond"})
    protocols.does["extracting"] = slow
    await protocols.start()
    await protocols.until("dead_letter")
    await doorstep.close()
    slow.go.set()
    await until(slow.done.is_set)
    await asyncio.sleep(0.3)
    assert not doorstep.binding.is_open()


async def test_a_foreign_event_of_a_stages_type_does_nothing(protocols: Protocols) -> None:
    await protocols.start()
    entity = await protocols.until("pending_review")
    for payload in ({"protocol_id": "p1"}, {"protocol_id": "unknown"}, [1], {}):
        receipt = await protocols.doorstep.send("protocol.extracting", payload)
        (delivery,) = await protocols.scene.deliveries(receipt)
        await protocols.scene.until_state(delivery, DeliveryState.DELIVERED)
    assert await protocols.pipeline.entity("p1") == entity


# -- archive and lists -------------------------------------------------------------------------------------


async def test_a_dead_letter_that_nobody_touched_for_a_week_is_archived_and_can_still_be_retried(
    protocols: Protocols,
) -> None:
    protocols.does["extracting"] = broken
    await protocols.start()
    await protocols.until("dead_letter")
    protocols.scene.leap(7 * DAY - 60)
    assert (await protocols.pipeline.entity("p1")).status == "dead_letter"
    protocols.scene.leap(120)
    assert (await protocols.pipeline.entity("p1")).status == "archived", "seen so before the keeper has come by"
    protocols.doorstep.components.pipeline_reconciler.wake.set()

    async def kept() -> bool:
        return (
            await protocols.doorstep.components.store.get(model.Entity, DEFAULT_ORG, ("protocol", "p1"))
        ).status == "archived"

    await until(kept, "the keeper")
    protocols.does["extracting"] = lambda _: None
    await protocols.pipeline.retry("p1", "ops")
    await protocols.until("pending_review")
    assert (await protocols.path())[-5:] == ["archived", "uploaded", "extracting", "grounding", "pending_review"]


async def test_lists_hide_the_archived_unless_asked_and_come_in_pages(protocols: Protocols) -> None:
    protocols.does["extracting"] = lambda entity: broken(entity) if entity.data["bad"] else None
    for n in range(6):
        await protocols.start(f"p{n}", bad=n < 3)
    for n in range(6):
        await protocols.until("dead_letter", "pending_review", entity_id=f"p{n}")

    async def names(**asked: object) -> list[str]:
        return [one.entity_id for one in (await protocols.pipeline.list(**asked)).items]  # type: ignore[arg-type]

    assert await names() == ["p5", "p4", "p3", "p2", "p1", "p0"]
    assert await names(status="dead_letter") == ["p2", "p1", "p0"]
    page = await protocols.pipeline.list(limit=4)
    assert page.next is not None
    assert await names(limit=4, cursor=page.next) == ["p1", "p0"]
    protocols.scene.leap(7 * DAY + 1)
    assert await names() == ["p5", "p4", "p3"]
    assert await names(status="dead_letter") == []
    assert await names(status="archived") == ["p2", "p1", "p0"]
    assert await names(archived=True) == ["p5", "p4", "p3", "p2", "p1", "p0"]
    assert await names(status="lost") == [], "no such status is declared, and nothing has it from former times"


# -- the ways to start an entity ---------------------------------------------------------------------------


async def test_an_entity_begun_in_the_programs_own_transaction_exists_if_and_only_if_that_commits(
    protocols: Protocols,
) -> None:
    url = protocols.doorstep.settings.database_url
    if url.startswith("sqlite"):
        await asyncio.to_thread(_begin_on_sqlite, protocols, url.removeprefix("sqlite:///"))
    else:
        await _begin_on_asyncpg(protocols, url)
    entity = await _arrived(protocols, "committed")
    assert entity.data == {"n": 1}
    (begun, *_) = await protocols.pipeline.history("committed")
    assert protocols.brought_by == begun.event_id, "the event that its program was told of is the one that brought it"
    with pytest.raises(NotFound):
        await protocols.pipeline.entity("rolled-back")


def _begin_on_sqlite(protocols: Protocols, path: str) -> None:
    connection = sqlite3.connect(path, timeout=PATIENCE_SECONDS)
    protocols.pipeline.start_sync({"n": 1}, "rolled-back", connection=connection)
    connection.rollback()
    protocols.brought_by = protocols.pipeline.start_sync({"n": 1}, "committed", connection=connection).event_id
    connection.commit()
    connection.close()


async def _begin_on_asyncpg(protocols: Protocols, url: str) -> None:
    connection = await asyncpg.connect(url)
    for name in ("rolled-back", "committed"):
        transaction = connection.transaction()
        await transaction.start()
        protocols.brought_by = (await protocols.pipeline.start({"n": 1}, name, connection=connection)).event_id
        await (transaction.rollback() if name == "rolled-back" else transaction.commit())
    await connection.close()


async def _arrived(protocols: Protocols, entity_id: str) -> Entity:
    async def there() -> bool:
        try:
            return (await protocols.pipeline.entity(entity_id)).status == "pending_review"
        except NotFound:
            return False

    await until(there, "an entity that was begun in a transaction")
    return await protocols.pipeline.entity(entity_id)


async def test_a_script_without_an_event_loop_starts_entities(protocols: Protocols) -> None:
    await asyncio.to_thread(protocols.pipeline.start_sync, {"n": 1}, "p1")
    assert (await protocols.until("pending_review")).data == {"n": 1}


async def test_a_stage_in_a_process_of_its_own_may_die_and_costs_only_its_attempt(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOLATED_URL", database_url)
    monkeypatch.setenv("DOORSTEP_SECRET_KEY", new_secret_key())
    sys.modules.pop("tests.acceptance.isolated_protocols", None)
    program = importlib.import_module("tests.acceptance.isolated_protocols")
    pipeline: Pipeline = program.protocols
    async with program.doorstep:
        await pipeline.start({"poison": True}, "bad")
        await pipeline.start({}, "good")

        async def ended() -> bool:
            return [(await pipeline.entity(one)).status for one in ("bad", "good")] == ["dead_letter", "complete"]

        await until(ended, "both")
        bad, good = await pipeline.entity("bad"), await pipeline.entity("good")
    assert (bad.metadata["error"]["code"], bad.metadata["error"]["attempt_count"]) == ("HANDLER_CRASHED", 3)
    assert os.getpid() not in good.data.values() and len(set(good.data.values())) == 2
