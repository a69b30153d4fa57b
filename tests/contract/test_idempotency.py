"""Promise 7: a repeated request with the same organization, key and body gets the first answer again for 24 hours."""

from __future__ import annotations

import asyncio

from doorstep.clock import DAY
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import Submission, Verdict
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_org
from tests.support.shortcuts import put, routing_versions


def keyed(scene: Scene, payload: bytes = b"1", key: str = "k") -> Submission:
    return a_submission(scene.org_id, [scene.endpoint.endpoint_id], key=key, payload=payload)


async def test_a_repeated_request_gets_the_first_receipt_and_adds_nothing(scene: Scene) -> None:
    (first,) = await scene.submit(keyed(scene))
    scene.wait(5)
    (again,) = await scene.submit(keyed(scene))

    assert again.verdict is Verdict.REPEATED
    assert (again.event_id, again.created_at, again.deliveries) == (first.event_id, first.created_at, 1)
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_another_body_under_the_same_key_is_a_conflict_that_names_the_first_event(scene: Scene) -> None:
    (first,) = await scene.submit(keyed(scene))
    (second,) = await scene.submit(keyed(scene, payload=b"2"))

    assert (second.verdict, second.event_id) == (Verdict.CONFLICT, first.event_id)
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_two_submissions_of_one_call_may_share_a_key(scene: Scene) -> None:
    receipts = await scene.submit(keyed(scene), keyed(scene), keyed(scene, payload=b"2"), keyed(scene, key="other"))

    verdicts = [one.verdict for one in receipts]
    assert verdicts == [Verdict.ACCEPTED, Verdict.REPEATED, Verdict.CONFLICT, Verdict.ACCEPTED]
    assert receipts[1].event_id == receipts[0].event_id
    assert await scene.counts() == {DeliveryState.PENDING: 2}


async def test_a_key_counts_only_within_its_organization(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    (first,) = await scene.submit(keyed(scene))
    (second,) = await scene.submit(a_submission(other.org_id, key="k", payload=b"1"))

    assert (first.verdict, second.verdict) == (Verdict.ACCEPTED, Verdict.ACCEPTED)


async def test_a_key_counts_until_just_before_24_hours_have_passed(scene: Scene) -> None:
    await scene.submit(keyed(scene))
    scene.wait(DAY - 1)
    (receipt,) = await scene.submit(keyed(scene))
    assert receipt.verdict is Verdict.REPEATED


async def test_a_key_is_free_again_after_24_hours(scene: Scene) -> None:
    await scene.submit(keyed(scene))
    scene.wait(DAY)
    (receipt,) = await scene.submit(keyed(scene, payload=b"2"))
    assert receipt.verdict is Verdict.ACCEPTED
    (again,) = await scene.submit(keyed(scene, payload=b"2"))
    assert (again.verdict, again.event_id) == (Verdict.REPEATED, receipt.event_id), "24 hours begin anew"


async def test_events_without_a_key_are_never_taken_for_repeats(scene: Scene) -> None:
    receipts = [(await scene.submit(a_submission(scene.org_id)))[0] for _ in range(2)]
    assert {one.verdict for one in receipts} == {Verdict.ACCEPTED}


async def test_a_hundred_concurrent_requests_with_one_key_make_one_event(scene: Scene, other_store: Store) -> None:
    version = await routing_versions(scene.store)
    stores = [scene.store, other_store] * 50
    answers = await asyncio.gather(*(store.accept([keyed(scene)], version, scene.now) for store in stores))

    receipts = [receipt for (receipt,) in answers]
    assert sorted(one.verdict for one in receipts) == [Verdict.ACCEPTED] + [Verdict.REPEATED] * 99
    assert len({one.event_id for one in receipts}) == 1
    assert await scene.counts() == {DeliveryState.PENDING: 1}


async def test_of_concurrent_requests_with_one_key_and_many_bodies_one_body_wins(
    scene: Scene, other_store: Store
) -> None:
    version = await routing_versions(scene.store)
    bodies = [b"%d" % (n % 5) for n in range(50)]
    stores = [scene.store, other_store] * 25
    answers = await asyncio.gather(
        *(
            store.accept([keyed(scene, payload=body)], version, scene.now)
            for store, body in zip(stores, bodies, strict=True)
        )
    )

    by_body = {
        body: {answer[0].verdict for answer, of in zip(answers, bodies, strict=True) if of == body} for body in bodies
    }
    assert sorted(map(sorted, by_body.values())) == [[Verdict.ACCEPTED, Verdict.REPEATED]] + [[Verdict.CONFLICT]] * 4
