"""Confirmation questions: each fits over the page that asks it, and irreversible actions require a reason, which is
kept."""

from __future__ import annotations

import asyncio
import html
from collections import Counter
from itertools import product
from urllib.parse import urlencode
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.routes import all_pages
from doorstep.model.action import REASON_CHARACTERS_MAX, ActionKind
from doorstep.model.bulk import Bulk, BulkFilter, BulkKind, BulkState, Selection
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.listing import RetryQueueFilter
from doorstep.operations import bulk
from tests.console.dying import LETTERS, die
from tests.console.furnished import House
from tests.console.markup import Element, elements
from tests.console.queueing import QUEUE
from tests.console.visiting import Console
from tests.support.scene import Scene

ASKING = [
    page
    for page in all_pages()
    if page.method == "GET" and not page.path.endswith(("/payload", "/body", "/export", "/find", "/delete", "/edit"))
]


def ids_in(found: list[Element]) -> Counter[str]:
    return Counter(one.attributes["id"] for one in found if "id" in one.attributes)


def questions_of(page: list[Element]) -> set[str]:
    """The targets of the page's links and buttons that open a dialog, with all items selected for list buttons. A page
    that is itself a question has none, because its next question replaces it."""
    asking = [one.attributes for one in page if "data-dialog" in one.attributes and "question" not in ids_in(page)]
    return {html.unescape(one.get("href") or f"{one['formaction']}?all=yes") for one in asking}


async def test_a_question_has_no_id_that_the_page_under_it_has(house: House, subtests: pytest.Subtests) -> None:
    for page in ASKING:
        with subtests.test(page=page.path):
            visitor = await house.visitor()
            below = elements((await visitor.get(house.path(page))).source)
            for place in questions_of(below):
                shown = await visitor.get(place)
                (form,) = [one.form for one in elements(shown.source) if one.attributes.get("id") == "question"]
                inside = ids_in([one for one in elements(shown.source) if one.form == form])
                assert max(inside.values()) == 1, place
                assert set(inside) & set(ids_in(below)) <= {"question"}, f"{page.path} under {place}"


async def test_the_questions_of_the_screens_are_found(house: House) -> None:
    """If this failed, the test above could never fail."""
    visitor = await house.visitor()
    paths = ("/console/retry-queue", "/console/settings/organizations", f"/console/events/{house.ids['event_id'][0]}")
    found = [questions_of(elements((await visitor.get(path)).source)) for path in paths]
    assert all(found), found


# -- required reasons --------------------------------------------------------------------------------------------------


async def waiting(scene: Scene) -> str:
    """The id of a delivery that waits for a retry."""
    scene.receiver.says(503)
    await scene.endpoint(policy=RetryPolicy((600.0,)))
    delivery = await scene.until_tried(await scene.send())
    return str((await scene.until_state(delivery, DeliveryState.PENDING)).delivery_id)


async def test_what_cannot_be_undone_is_not_done_without_a_reason_that_can_be_kept(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    delivery_id = await waiting(scene)
    for act, reason in product(("skip", "cancel"), ("", "  ", "x" * (REASON_CHARACTERS_MAX + 1))):
        with subtests.test(act=act, reason=reason[:9]):
            path = f"/console/deliveries/{delivery_id}/{act}"
            assert " required" in (await console.get(path)).source
            shown = await console.post(path, reason=reason, back="/console/retry-queue")
            assert (shown.status, shown.path, shown.field("back")) == (422, path, "/console/retry-queue")
            assert "must be" in (shown.said or "")
            assert await scene.count(DeliveryState.PENDING) == 1


async def test_a_bulk_operation_is_cancelled_after_a_question_for_a_reason(scene: Scene, console: Console) -> None:
    await waiting(scene)
    await scene.until_state(await scene.until_tried(await scene.send()), DeliveryState.PENDING)
    bulk = await scene.doorstep.components.bulk.start(
        BulkKind.RETRY, DEFAULT_ORG, Selection(queue=RetryQueueFilter()), "test", reason="outage", rate_per_second=0.01
    )
    place = f"/console/bulk/{bulk.bulk_id}"
    await scene.doorstep.components.bulk.pause(DEFAULT_ORG, bulk.bulk_id, "test")
    assert (
        f'href="{place}/cancel?{urlencode({"back": place})}"'.replace("%2F", "/") in (await console.get(place)).source
    )
    assert "Cancel the bulk retry" in (await console.get(f"{place}/cancel?back={place}")).text
    refused = await console.post(f"{place}/cancel", back=place)
    assert refused.asks_why and "Cancel the bulk retry" in refused.text
    assert (await scene.doorstep.components.store.get(Bulk, DEFAULT_ORG, bulk.bulk_id)).state is BulkState.PAUSED
    shown = await console.post(f"{place}/cancel", reason="wrong filter", back=place)
    assert shown.said == "Cancelled. What is done stays done."
    (line,) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "bulk.retry.cancel", None, 10)).items
    assert line.reason == "wrong filter"


# -- only what was asked is done ---------------------------------------------------------------------------------------


async def test_a_wrong_answer_asks_again_with_everything_that_was_entered(scene: Scene, console: Console) -> None:
    letters = await die(scene, 2)
    ids = [str(one.delivery_id) for one in letters]
    said: dict[str, object] = {"id": ids, "back": f"{LETTERS}/letters", "reason": "they fixed it", "rate": "-1"}
    await console.get(f"{LETTERS}/letters")
    shown = await console.post(f"{LETTERS}/retry", said)
    assert (shown.status, shown.path) == (422, f"{LETTERS}/retry")
    assert "Retry 2 deliveries?" in shown.text
    assert 'value="they fixed it"' in shown.source
    assert '<small id="ask-note-rate" class="error-words">must be from 0.01 to 100000</small>' in shown.source
    assert all(f'name="id" value="{one}"' in shown.source for one in ids)
    assert shown.field("back") == f"{LETTERS}/letters"
    unsaid = await console.post(f"{LETTERS}/delete", {"all": "yes"})
    assert unsaid.asks_why
    canary = await console.post(f"{LETTERS}/retry", {"all": "yes", "rate": "x"})
    assert 'name="canary" type="checkbox" value="yes">' in canary.source, "it had been unticked"
    assert (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items == ()


async def test_a_question_that_is_answered_twice_begins_one_operation(scene: Scene, console: Console) -> None:
    await die(scene, 2)
    question = await console.get(f"{LETTERS}/resolve?all=yes")
    said: dict[str, object] = {"all": "yes", "once": question.field("once")}
    first, second = await asyncio.gather(*(console.post(f"{LETTERS}/resolve", said) for _ in range(2)))
    (bulk,) = (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items
    assert first.path == second.path == f"/console/bulk/{bulk.bulk_id}"
    late = await console.post(f"{LETTERS}/resolve", said)
    assert (late.path, late.said) == (first.path, "Already started: this form was sent before.")


async def test_a_row_that_moved_on_is_not_acted_upon_and_its_state_is_told(scene: Scene, console: Console) -> None:
    queued = await waiting(scene)
    await console.get(QUEUE)
    early = await console.post(f"{LETTERS}/{queued}/retry", back=LETTERS)
    await scene.doorstep.components.deliveries.act_on(ActionKind.SKIP, DEFAULT_ORG, UUID(queued), "another")
    late = await console.post(f"{QUEUE}/{queued}/retry", back=QUEUE)
    for shown, state in ((early, "pending"), (late, "dead")):
        assert (shown.said or "").endswith(f"is {state} by now and was not retried; check it and decide again")
    ticked = await console.post(f"{QUEUE}/retry", id=queued, back=QUEUE)
    assert "is dead by now and was not retried" in (ticked.said or "")
    question = await console.get(f"{QUEUE}/retry?id={queued}")
    assert "1 selected delivery has left this list, and will not be changed." in question.text
    assert "Retry now 0 deliveries?" in question.text
    assert await scene.count(DeliveryState.DEAD) == 1


async def test_a_question_about_very_many_says_that_it_tells_of_the_first(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_PREVIEWED_MAX", 2)
    await die(scene, 3)
    question = await console.get(f"{LETTERS}/retry?all=yes")
    assert "Retry 3 deliveries?" in question.text
    assert "The first 2; there are more, perhaps for other endpoints." in question.text
