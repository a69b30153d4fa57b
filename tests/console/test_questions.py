"""Questions: each fits over the page that asks it, and what cannot be undone is done for a reason that is kept."""

from __future__ import annotations

import html
from collections import Counter
from urllib.parse import urlencode

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.mounting import all_pages
from doorstep.console.page import Page
from doorstep.model.act import REASON_CHARACTERS_MAX
from doorstep.model.bulk import BulkKind, BulkState, Selection
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import Queue
from doorstep.model.retry_policy import RetryPolicy
from tests.acceptance.scene import Scene
from tests.console.furnished import House
from tests.console.markup import Element, elements
from tests.console.visiting import Console

ASKING = [
    page
    for page in all_pages()
    if page.method == "GET" and not page.path.endswith(("/payload", "/export", "/find", "/delete", "/edit"))
]


def ids_in(found: list[Element]) -> Counter[str]:
    return Counter(one.attributes["id"] for one in found if "id" in one.attributes)


def questions_of(page: list[Element]) -> set[str]:
    """Where its links and buttons lead that open a dialog; buttons of a list are for all that match. What a question
    asks next takes its place."""
    asking = [one.attributes for one in page if "data-dialog" in one.attributes and "question" not in ids_in(page)]
    return {html.unescape(one.get("href") or f"{one['formaction']}?all=yes") for one in asking}


@pytest.mark.parametrize("page", ASKING, ids=[page.path for page in ASKING])
async def test_a_question_has_no_id_that_the_page_under_it_has(house: House, page: Page) -> None:
    visitor = await house.visitor()
    below = elements((await visitor.get(house.path(page))).source)
    for place in questions_of(below):
        shown = await visitor.get(place)
        (form,) = [one.form for one in elements(shown.source) if one.attributes.get("id") == "question"]
        inside = ids_in([one for one in elements(shown.source) if one.form == form])
        assert max(inside.values()) == 1, place
        assert set(inside) & set(ids_in(below)) <= {"question"}, f"{page.path} under {place}"


async def test_the_questions_of_the_screens_are_found(house: House) -> None:
    """Else the test above could not fail."""
    visitor = await house.visitor()
    paths = ("/console/retry-queue", "/console/settings/organizations", f"/console/events/{house.ids['event_id'][0]}")
    found = [questions_of(elements((await visitor.get(path)).source)) for path in paths]
    assert all(found), found


# -- for a reason ------------------------------------------------------------------------------------------------------


async def waiting(scene: Scene) -> str:
    """The id of a delivery that waits to be retried."""
    scene.receiver.says(503)
    await scene.endpoint(policy=RetryPolicy((600.0,)))
    delivery = await scene.until_tried(await scene.send())
    return str((await scene.until_state(delivery, DeliveryState.PENDING)).delivery_id)


@pytest.mark.parametrize("place", ["/console/deliveries/{}/skip", "/console/deliveries/{}/cancel"])
@pytest.mark.parametrize("reason", ["", "  ", "x" * (REASON_CHARACTERS_MAX + 1)])
async def test_what_cannot_be_undone_is_not_done_without_a_reason_that_can_be_kept(
    scene: Scene, console: Console, place: str, reason: str
) -> None:
    path = place.format(await waiting(scene))
    assert " required" in (await console.get(path)).source
    shown = await console.post(path, reason=reason, back="/console/retry-queue")
    assert shown.path == "/console/retry-queue"
    assert (shown.said or "").startswith("reason: must be")
    assert await scene.count(DeliveryState.PENDING) == 1


async def test_a_bulk_operation_is_cancelled_after_a_question_for_a_reason(scene: Scene, console: Console) -> None:
    await waiting(scene)
    bulk = await scene.doorstep.bulk.start(
        BulkKind.RETRY, DEFAULT_ORG, Selection(queue=Queue()), "test", reason="outage", rate_per_second=0.01
    )
    place = f"/console/bulk/{bulk.bulk_id}"
    await scene.doorstep.bulk.pause(DEFAULT_ORG, bulk.bulk_id, "test")
    assert (
        f'href="{place}/cancel?{urlencode({"back": place})}"'.replace("%2F", "/") in (await console.get(place)).source
    )
    assert "Cancel the bulk retry" in (await console.get(f"{place}/cancel?back={place}")).text
    refused = await console.post(f"{place}/cancel", back=place)
    assert (refused.said or "").startswith("reason: must be given")
    assert (await scene.doorstep.store.bulk(DEFAULT_ORG, bulk.bulk_id)).state is BulkState.PAUSED
    shown = await console.post(f"{place}/cancel", reason="wrong filter", back=place)
    assert shown.said == "Cancelled. What it has done stays done."
    (line,) = (await scene.doorstep.reading.audit(DEFAULT_ORG, None, "bulk.retry.cancel", None, 10)).items
    assert line.reason == "wrong filter"
