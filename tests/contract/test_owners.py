"""Events of a user: which of them a list, a lease and an answer reach, and who is named when they change."""

from __future__ import annotations

from uuid import UUID

import pytest

from doorstep.model.claim import Settlement
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.inbox import InboxAnswer, InboxResult
from doorstep.model.listing import EventFilter, InboxFilter
from tests.contract.scene import Scene
from tests.support.builders import a_submission, failure
from tests.support.shortcuts import acknowledge

OWNERS = ("ada", None, "ben", "ada")


@pytest.fixture
async def received(scene: Scene) -> list[UUID]:
    """Events of the inbox, one of each owner, oldest first."""
    made = [
        a_submission(scene.org_id, created_at=scene.now + n, user_id=owner, event_type=f"of.{owner}")
        for n, owner in enumerate(OWNERS)
    ]
    await scene.submit(*made)
    scene.now += len(made)
    return [one.event.event_id for one in made]


async def test_an_event_is_read_with_its_user(scene: Scene, received: list[UUID]) -> None:
    views = [await scene.store.get(EventView, scene.org_id, one) for one in received]
    summaries = await scene.store.get_many(EventSummary, scene.org_id, received)
    assert [view.event.user_id for view in views] == list(OWNERS)
    assert {one.event_id: one.user_id for one in summaries} == dict(zip(received, OWNERS, strict=True))


@pytest.mark.parametrize(("user", "numbers"), [("ada", [0, 3]), ("ben", [2]), ("eve", []), (None, [0, 1, 2, 3])])
async def test_lists_have_the_events_of_one_user_or_of_all(
    scene: Scene, received: list[UUID], user: str | None, numbers: list[int]
) -> None:
    expected = [received[number] for number in numbers]
    inbox = InboxFilter(user_id=user)
    assert [view.event.event_id for view in (await scene.store.page(scene.org_id, inbox)).items] == expected
    assert (await scene.store.count(scene.org_id, inbox)).value == len(expected)
    listed = await scene.store.page(scene.org_id, EventFilter(user_id=user, oldest_first=True))
    assert [one.event_id for one in listed.items] == expected


async def test_a_page_of_a_user_continues_after_the_events_of_others(scene: Scene, received: list[UUID]) -> None:
    first = await scene.store.page(scene.org_id, InboxFilter(user_id="ada"), None, 1)
    second = await scene.store.page(scene.org_id, InboxFilter(user_id="ada"), first.next, 1)
    assert [view.event.event_id for page in (first, second) for view in page.items] == [received[0], received[3]]
    assert second.next is None


async def test_a_user_leases_only_own_events(scene: Scene, received: list[UUID]) -> None:
    async def lease(user: str | None, *types: str) -> list[UUID]:
        until = scene.now + 1_000
        return [
            view.event.event_id
            for view in await scene.store.lease_inbox(scene.org_id, types, 9, "a", scene.now, until, user)
        ]

    assert await lease("ada", "of.ben") == []
    assert await lease("ada", "of.ada", "of.ben") == [received[0], received[3]]
    assert await lease("ben") == [received[2]]
    assert await lease(None) == [received[1]]


async def test_an_answer_of_another_user_finds_nothing(scene: Scene, received: list[UUID]) -> None:
    answers = [InboxAnswer(one, user_id="ada") for one in received]
    answered = await scene.store.answer_inbox(scene.org_id, answers, "a", scene.now)
    done, unknown = InboxResult.ACKNOWLEDGED, InboxResult.NOT_FOUND
    assert list(answered.results.values()) == [done, unknown, unknown, done]
    assert [change.user_id for change in answered.changes] == ["ada", "ada"]
    assert await scene.status(received[2]) is EventStatus.RECEIVED
    assert (await acknowledge(scene.store, scene.org_id, received[1], scene.now)).done == (received[1],)


async def test_claims_and_status_changes_name_the_user(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id], created_at=scene.now, user_id="ada")
    await scene.submit(submission)
    (claim,) = await scene.claim()
    assert claim.user_id == "ada"
    settled = await scene.store.settle([Settlement.dead(claim, failure(scene.now))], scene.now)
    assert [change.user_id for change in settled.changes] == ["ada"]
    failed = InboxFilter(status=EventStatus.FAILED, user_id="ada")
    assert [view.event.user_id for view in (await scene.store.page(scene.org_id, failed)).items] == ["ada"]
    assert (await scene.store.count(scene.org_id, InboxFilter(status=EventStatus.FAILED, user_id="ben"))).value == 0


async def test_an_expired_claim_names_the_user(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id], created_at=scene.now, user_id="ada")
    await scene.submit(submission)
    (claim,) = await scene.claim()
    (expired,) = await scene.store.expired(claim.lease_until, 9)
    assert expired.user_id == "ada"
