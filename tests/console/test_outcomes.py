"""After an action the console tells its outcome as soon as it is known: live, or on the next page without scripts."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.bulk import BulkFilter
from doorstep.model.delivery import DeliveryState
from tests.console.chromium import Look
from tests.console.dying import die
from tests.console.queueing import QUEUE, failing
from tests.console.visiting import Console
from tests.support.scene import Scene, until

TOLD = "#told"
SUCCEEDED = "Retry succeeded. Event removed from the queue."


# -- without scripts ---------------------------------------------------------------------------------------------------


async def test_without_scripts_the_next_page_tells_what_became_of_a_retry(scene: Scene, console: Console) -> None:
    (delivery,) = await failing(scene, 1)
    await console.get(QUEUE)
    scene.receiver.says(200)
    scene.receiver.hold.clear()
    shown = await console.post(f"{QUEUE}/{delivery.delivery_id}/retry", back=QUEUE)
    assert (shown.path, shown.said) == (QUEUE, "Retrying…")
    assert (await console.get("/console/events")).said == "Retrying…", "its result is not known yet"
    scene.receiver.hold.set()
    await scene.until_state(delivery, DeliveryState.DELIVERED)
    assert (await console.get("/console/settings/about")).said == SUCCEEDED
    assert (await console.get(QUEUE)).said is None, "told once"


async def test_a_retry_that_fails_tells_why_and_when_the_next_one_is(scene: Scene, console: Console) -> None:
    (delivery,) = await failing(scene, 1)
    watch = f"/console/outcome?delivery={delivery.delivery_id}&after=1&of=queue"
    await console.get(QUEUE)
    await console.post(f"{QUEUE}/{delivery.delivery_id}/retry", back=QUEUE)
    await until(lambda: _has(console, watch, "Retry failed: "), "the result")
    shown = await console.get(watch)
    assert "503" in (shown.said or "") and "Next retry at <time" in (shown.said or "")


async def _has(console: Console, path: str, words: str) -> bool:
    return words in ((await console.get(path)).said or "")


async def test_an_outcome_is_only_for_the_own_organization_and_needs_a_watch(scene: Scene, console: Console) -> None:
    assert (await console.get("/console/outcome")).status == 422
    unknown = "0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"
    assert (await console.get(f"/console/outcome?delivery={unknown}&after=1")).status == 404
    assert (await console.get(f"/console/outcome?bulk={unknown}")).status == 404


# -- in the browser ----------------------------------------------------------------------------------------------------


@pytest.mark.key_story
async def test_the_result_of_a_retry_is_told_although_its_row_has_left_the_list(scene: Scene, look: Look) -> None:
    first, second = await failing(scene, 2)
    page = await look(QUEUE)
    await expect(page.locator(TOLD)).to_have_attribute("role", "status")
    scene.receiver.says(200)
    scene.receiver.hold.clear()
    for delivery in (first, second):
        await page.locator(f"#row-{delivery.delivery_id}").get_by_role("button", name="Retry now").click()
    await expect(page.locator(f"{TOLD} > span")).to_have_text(["Retrying…", "Retrying…"])
    scene.receiver.hold.set()
    await expect(page.locator(f"{TOLD} > span")).to_have_text([SUCCEEDED, SUCCEEDED])
    await expect(page.get_by_text("No deliveries wait for a retry.")).to_be_visible()


async def test_the_result_of_a_bulk_retry_is_counted_while_it_runs_and_told_at_its_end(
    scene: Scene, look: Look
) -> None:
    await failing(scene, 3)
    page = await look(QUEUE)
    scene.receiver.says(200, 400, 200)
    scene.receiver.hold.clear()
    await page.get_by_role("link", name="Retry all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry now 3").click()
    await expect(page.locator(TOLD)).to_have_text(re.compile(r"^Retry running: 0/3 succeeded, 0 failed\.$"))
    scene.receiver.hold.set()
    await expect(page.locator(TOLD)).to_have_text("Retry finished: 2/3 succeeded, 1 failed.")
    bulks = await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 1)
    assert bulks.items[0].finished_at is not None


async def test_deleted_letters_are_told_in_bulk_and_alone(scene: Scene, console: Console) -> None:
    letters = await die(scene, 3)
    path, ids = "/console/dead-letters", [one.delivery_id for one in letters]
    await console.get(f"{path}/letters")
    shown = await console.post(f"{path}/delete", id=ids[0], reason="x", back=path)
    assert shown.said == "Entry deleted."
    shown = await console.post(f"{path}/delete", id=ids[1:], reason="x", back=path)
    watch = f"/console/outcome?bulk={shown.path.rsplit('/', 1)[1]}"
    await until(lambda: _has(console, watch, "2 entries deleted."), "the end of the operation")
