"""R1.3, R7: operator actions on deliveries are carried out where allowed, refused elsewhere, and always audited."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import NotFound
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.attempt import Category, Code
from doorstep.model.claim import Claim, Moved
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.listing import AuditFilter, CauseGroups, DeliveryAttempts, DeliveryHistory
from doorstep.model.org import ApiKey, Role
from doorstep.stores.store import Store
from tests.contract.scene import SOON, Scene
from tests.support.builders import NOW, an_org, new_id, refusal
from tests.support.shortcuts import put


async def dead_letter(scene: Scene) -> Claim:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.kill(claim)
    return claim


async def test_retrying_a_waiting_delivery_makes_it_due_now_and_forced(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.fail(claim)
    scene.wait(1)
    await scene.act(ActionKind.RETRY, claim.delivery_id)
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.due_at, delivery.forced) == (DeliveryState.PENDING, scene.now, True)
    assert (await scene.claim_one()).retry_attempts == 1, "the count goes on"


async def test_retrying_a_dead_letter_starts_a_new_round_when_it_was_said_to(scene: Scene) -> None:
    claim = await dead_letter(scene)
    scene.wait(9)
    result = await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now + 5 * SECOND)
    delivery = await scene.delivery(claim.delivery_id)

    assert result == ActionResult((claim.delivery_id,), {})
    assert (delivery.state, delivery.due_at, delivery.forced) == (DeliveryState.PENDING, scene.now + 5 * SECOND, True)
    assert (delivery.attempt, delivery.retry_attempts, delivery.settled_at) == (1, 0, None)
    assert delivery.code == Code.NOT_FOUND, "the last error is shown until there is another"
    assert await scene.claim() == []


async def test_a_retried_dead_letter_that_fails_again_returns_to_the_retry_queue(scene: Scene) -> None:
    claim = await dead_letter(scene)
    await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now)
    await scene.fail(await scene.claim_one())
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.next_retry_at) == (DeliveryState.PENDING, scene.now + SOON)


async def test_retrying_a_dead_letter_takes_its_event_from_failed_to_queued(scene: Scene) -> None:
    claim = await dead_letter(scene)
    assert await scene.status(claim.event_id) is EventStatus.FAILED
    act = Action(
        kind=ActionKind.RETRY, org_id=scene.org_id, delivery_ids=(claim.delivery_id,), actor="ops", at=scene.now
    )
    _, moved = await scene.store.act(act)
    assert [(one.event_id, one.old_status, one.new_status) for one in moved.changes] == [
        (claim.event_id, EventStatus.FAILED, EventStatus.QUEUED)
    ]
    assert await scene.status(claim.event_id) is EventStatus.QUEUED


async def test_an_event_never_returns_to_received(scene: Scene) -> None:
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.SKIP, delivery_id)
    assert await scene.status(submission.event.event_id) is EventStatus.FAILED
    await scene.act(ActionKind.RETRY, delivery_id)
    assert await scene.status(submission.event.event_id) is EventStatus.QUEUED


async def test_skipping_makes_a_dead_letter_that_says_who_skipped_it(scene: Scene) -> None:
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.SKIP, delivery_id, reason="test data")
    delivery = await scene.delivery(delivery_id)
    assert (delivery.state, delivery.settled_at, delivery.due_at) == (DeliveryState.DEAD, scene.now, None)
    assert (delivery.category, delivery.code) == (Category.PERMANENT, Code.SKIPPED)
    assert delivery.reason == "skipped by ops: test data"
    assert await scene.claim() == []


async def test_a_skip_keeps_the_error_of_the_last_attempt_and_its_cause(scene: Scene) -> None:
    await scene.accept(3)
    first, second, third = await scene.claim()
    await scene.kill(first)
    lasting = replace(refusal(scene.now), category=Category.TRANSIENT)
    await scene.fail(second, third, outcome=lasting)
    await scene.act(ActionKind.SKIP, second.delivery_id, reason="obsolete")
    await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, Code.SKIPPED, "too old", scene.now, 10)
    died, *skipped = [await scene.delivery(one.delivery_id) for one in (first, second, third)]
    for one in skipped:
        assert (one.state, one.settled_at) == (DeliveryState.DEAD, scene.now)
        assert (one.category, one.code, one.reason) == (Category.TRANSIENT, lasting.code, lasting.reason)
        assert one.cause == died.cause
    (group,) = (await scene.store.page(scene.org_id, CauseGroups())).items
    assert (group.cause, group.count.value, group.code) == (died.cause, 3, lasting.code)
    history = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=second.delivery_id))
    assert history[-1].note == "skipped by ops: obsolete"


async def test_a_history_names_the_key_that_acted_and_the_audit_log_its_prefix(scene: Scene) -> None:
    key = ApiKey(
        key_id=new_id(),
        org_id=scene.org_id,
        name="Lena",
        role=Role.ADMIN,
        prefix="dsk_lena",
        digest=b"1",
        created_at=NOW,
    )
    await put(scene.store, key)
    (skipped, _), (cancelled, event_id) = [
        (one.deliveries[0].delivery_id, one.event.event_id) for one in await scene.accept(2)
    ]
    await scene.act(ActionKind.SKIP, skipped, actor=key.prefix)
    await scene.store.delete_event(scene.org_id, event_id, key.prefix, scene.now)
    for delivery_id, note in ((skipped, "skipped by Lena"), (cancelled, "event deleted by Lena")):
        history = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=delivery_id))
        assert history[-1].note == note
    assert {entry.actor for entry in (await scene.store.page(scene.org_id, AuditFilter())).items} == {key.prefix}


async def test_resolving_the_last_dead_letter_delivers_the_event(scene: Scene) -> None:
    claim = await dead_letter(scene)
    scene.wait(9)
    await scene.act(ActionKind.RESOLVE, claim.delivery_id)
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.settled_at) == (DeliveryState.RESOLVED, scene.now)
    assert await scene.status(claim.event_id) is EventStatus.DELIVERED


async def test_a_cancelled_delivery_is_never_tried(scene: Scene) -> None:
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    await scene.act(ActionKind.RETRY, delivery_id)
    await scene.act(ActionKind.CANCEL, delivery_id)
    delivery = await scene.delivery(delivery_id)
    assert (delivery.state, delivery.settled_at, delivery.forced) == (DeliveryState.CANCELLED, scene.now, False)
    assert await scene.claim() == []
    assert await scene.store.claim([], scene.now, scene.now + SOON, "w1", forced_max=9) == []
    assert await scene.status(submission.event.event_id) is EventStatus.FAILED


async def test_a_deleted_dead_letter_can_no_longer_be_acted_on_but_its_log_stays(scene: Scene) -> None:
    claim = await dead_letter(scene)
    await scene.act(ActionKind.DELETE, claim.delivery_id)

    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.deleted, delivery.state) == (True, DeliveryState.DEAD)
    assert len(await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))) == 1
    assert await scene.status(claim.event_id) is EventStatus.FAILED
    for kind in ActionKind:
        assert (await scene.act(kind, claim.delivery_id)).refused == {claim.delivery_id: None}


async def test_unknown_ids_and_those_of_another_organization_are_refused_alike(scene: Scene) -> None:
    claim = await dead_letter(scene)
    other = an_org()
    await put(scene.store, other)
    unknown = new_id()
    ids = (claim.delivery_id, unknown)
    act = Action(kind=ActionKind.RETRY, org_id=other.org_id, delivery_ids=ids, actor="spy", at=scene.now)
    result, moved = await scene.store.act(act)
    assert result == ActionResult((), {claim.delivery_id: None, unknown: None})
    assert moved == Moved()
    assert (await scene.delivery(claim.delivery_id)).state is DeliveryState.DEAD


async def test_an_act_on_many_does_what_it_can_and_says_what_it_could_not(scene: Scene) -> None:
    await scene.accept(3)
    ended, held, waiting = await scene.claim(3)
    await scene.kill(ended)
    await scene.fail(waiting)
    unknown = new_id()
    ids = [waiting.delivery_id, held.delivery_id, unknown, ended.delivery_id]

    result = await scene.act(ActionKind.RETRY, *ids)

    assert result.done == (waiting.delivery_id, ended.delivery_id)
    assert result.refused == {held.delivery_id: DeliveryState.IN_PROGRESS, unknown: None}


async def test_an_id_named_twice_counts_once(scene: Scene) -> None:
    claim = await dead_letter(scene)
    result = await scene.act(ActionKind.RETRY, claim.delivery_id, claim.delivery_id)
    assert result == ActionResult((claim.delivery_id,), {})


async def test_every_act_is_audited_once_with_its_result(scene: Scene) -> None:
    claim = await dead_letter(scene)
    unknown = new_id()
    await scene.act(ActionKind.RESOLVE, claim.delivery_id, unknown, actor="key:ab12", reason="shipped by hand")
    scene.wait(1)
    await scene.act(ActionKind.RESOLVE, claim.delivery_id)

    assert list((await scene.store.page(scene.org_id, AuditFilter())).items) == [
        AuditEntry(
            at=scene.now,
            org_id=scene.org_id,
            actor="ops",
            action="resolve",
            subjects=(str(claim.delivery_id),),
            result="0 done, 1 refused",
        ),
        AuditEntry(
            at=scene.now - 1,
            org_id=scene.org_id,
            actor="key:ab12",
            action="resolve",
            subjects=(str(claim.delivery_id), str(unknown)),
            result="1 done, 1 refused",
            reason="shipped by hand",
        ),
    ]


async def test_the_audit_is_bounded_newest_first_and_kept_apart_by_organization(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    for n in range(3):
        line = AuditEntry(at=scene.now, org_id=scene.org_id, actor="a", action=f"x{n}", subjects=(), result="ok")
        await scene.store.write([], line)
    assert [line.action for line in (await scene.store.page(scene.org_id, AuditFilter(), limit=2)).items] == [
        "x2",
        "x1",
    ]
    assert (await scene.store.page(other.org_id, AuditFilter())).items == ()


async def test_an_act_or_audit_line_for_an_unknown_organization_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.store.act(Action(kind=ActionKind.SKIP, org_id=new_id(), delivery_ids=(), actor="a", at=scene.now))
    line = AuditEntry(at=scene.now, org_id=new_id(), actor="a", action="x", subjects=(), result="ok")
    with pytest.raises(NotFound):
        await scene.store.write([], line)


async def test_of_concurrent_acts_on_one_dead_letter_one_is_done(scene: Scene, other_store: Store) -> None:
    claim = await dead_letter(scene)
    kinds = [ActionKind.RESOLVE, ActionKind.DELETE] * 5
    acts = [
        Action(kind=kind, org_id=scene.org_id, delivery_ids=(claim.delivery_id,), actor="a", at=scene.now)
        for kind in kinds
    ]
    stores = [scene.store, other_store] * 5
    results = await asyncio.gather(*(store.act(act) for store, act in zip(stores, acts, strict=True)))
    assert sum(len(result.done) for result, _ in results) == 1
