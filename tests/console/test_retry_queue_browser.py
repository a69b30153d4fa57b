"""The retry queue as an operator uses it: R7.1 to R7.3, from the click to the database and back."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.org import Role
from tests.console.conftest import Look
from tests.console.queueing import QUEUE, failing
from tests.console.refreshing import refreshed
from tests.console.timers import stop_timers
from tests.support.scene import Scene, until


async def state_of(scene: Scene, delivery: Delivery) -> DeliveryState:
    return (await scene.doorstep.components.reader.delivery(DEFAULT_ORG, delivery.delivery_id)).state


@pytest.mark.key_story
async def test_retry_now_delivers_and_the_row_leaves_the_queue(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    row = page.locator(f"#row-{delivery.delivery_id}")
    await expect(row).to_contain_text("SERVICE_UNAVAILABLE")
    await expect(row).to_contain_text("0 / 3")
    scene.receiver.says(200)
    await row.get_by_role("button", name="Retry now").click()
    await expect(page.locator("#told")).to_have_text("Retry succeeded. Event removed from the queue.")
    await expect(page.get_by_text("No deliveries wait for a retry.")).to_be_visible()
    assert await state_of(scene, delivery) is DeliveryState.DELIVERED


async def test_a_retry_that_fails_counts_up_and_gets_a_new_time(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    await page.locator(f"#row-{delivery.delivery_id}").get_by_role("button", name="Retry now").click()
    await expect(page.locator("#told")).to_have_text(re.compile(r"^Retry failed: .*503.*Next retry at .*:\d\d\.$"))
    await expect(page.locator(f"#row-{delivery.delivery_id}")).to_contain_text("1 / 3")


async def test_skip_asks_first_and_makes_a_dead_letter(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    await page.locator(f"#row-{delivery.delivery_id}").get_by_role("link", name="Skip").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("Skip the retry and move it to the dead letters?")
    assert await state_of(scene, delivery) is DeliveryState.PENDING
    await question.get_by_label("Reason").fill("the order was cancelled by phone")
    await question.get_by_role("button", name="Skip 1").click()
    await expect(page.get_by_text("Moved to dead letters.")).to_be_visible()
    assert await state_of(scene, delivery) is DeliveryState.DEAD
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "skip", None, 10)).items
    assert "the order was cancelled by phone" in str(line)


async def test_a_range_is_ticked_with_shift_and_retried_in_bulk(scene: Scene, look: Look) -> None:
    deliveries = await failing(scene, 6)
    page = await look(QUEUE)
    await page.locator("input[data-row]").nth(0).click()
    await page.locator("input[data-row]").nth(4).click(modifiers=["Shift"])
    await expect(page.locator("[data-selected]")).to_have_text("5 selected")
    scene.receiver.says(200)
    await page.locator("[data-selection]").get_by_role("button", name="Retry now").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry now 5").click()
    await page.wait_for_url("**/console/bulk/*")

    async def all_but_one() -> bool:
        return [await state_of(scene, one) for one in deliveries].count(DeliveryState.DELIVERED) == 5

    await until(all_but_one, "five delivered, and one left alone")


async def test_a_live_list_pauses_while_rows_are_ticked_and_says_so(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(alone=True)
    await page.clock.install()
    await page.goto(QUEUE)
    status = page.locator("#live-status")
    await expect(status).to_have_text("Live")
    await page.locator("input[data-row]").first.click()
    await expect(status).to_have_text("Paused while rows are selected")
    await failing(scene, 1, "other-erp")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    await page.clock.run_for(60_000)
    await page.evaluate("fetch('/console/static/icon.svg')")  # all earlier requests have been seen by now
    assert asked == []
    assert await page.locator("#live tbody tr").count() == 2
    await page.get_by_role("button", name="Clear selection").click()
    await expect(page.locator("#live tbody tr")).to_have_count(3)


async def test_a_refresh_keeps_ticks_typed_text_and_focus(scene: Scene, look: Look) -> None:
    deliveries = await failing(scene, 3)
    page = await look(QUEUE)
    tick = page.locator(f"#tick-{deliveries[1].delivery_id}")
    await tick.click()
    await page.get_by_label("Event type", exact=True).fill("order")
    await failing(scene, 1, "other-erp")
    await refreshed(page)
    await expect(page.locator("#live tbody tr")).to_have_count(4)
    await expect(tick).to_be_checked()
    await expect(page.locator("input[data-row]:checked")).to_have_count(1)
    await expect(page.get_by_label("Event type", exact=True)).to_have_value("order")
    await expect(page.get_by_label("Event type", exact=True)).to_be_focused()


async def test_it_works_by_keyboard_alone(scene: Scene, look: Look) -> None:
    deliveries = await failing(scene, 3)
    page = await look(QUEUE, alone=True)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator("[data-selected]")).to_have_text("1 selected")
    await page.keyboard.press("Escape")
    await expect(page.locator("[data-selection]")).to_be_hidden()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Event type", exact=True)).to_be_focused()
    await page.keyboard.press("Tab")
    await page.locator(f"#row-{deliveries[0].delivery_id}").focus()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await stop_timers(page)
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await page.wait_for_url("**/console")


async def test_a_viewer_sees_no_action(scene: Scene, look: Look) -> None:
    await failing(scene, 1)
    page = await look(QUEUE, role=Role.VIEWER)
    await expect(page.locator("#live tbody tr")).to_have_count(1)
    assert await page.locator("main input[type=checkbox]").count() == 0
    assert await page.locator("main").get_by_role("button").all_text_contents() == ["Filter"]
    assert await page.locator("main").get_by_role("link", name="Skip").count() == 0
