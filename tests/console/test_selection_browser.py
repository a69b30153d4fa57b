"""The action bar above a list with checkboxes acts on exactly the items that it names, with scripts and without."""

from __future__ import annotations

import re

from playwright.async_api import Browser, expect

from doorstep.console.sessions import SignInLinks
from doorstep.model.delivery import DeliveryState
from tests.console.chromium import Look, opened
from tests.console.queueing import QUEUE, failing
from tests.console.refreshing import refreshed
from tests.support.api import Api
from tests.support.scene import Scene

BAR, ALL, BOXES = "[data-selection]", "[data-all]", "input[data-row]"


async def test_the_retry_key_does_nothing_while_nothing_is_ticked_and_no_row_is_gone_to(
    scene: Scene, look: Look
) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    await page.keyboard.press("r")
    await page.locator(BOXES).first.click()  # any effect of the key would be visible by now
    await expect(page.locator(BAR)).to_be_visible()
    assert await page.locator("dialog[open]").count() == 0
    assert await page.locator("#told").is_hidden()
    await page.keyboard.press("r")
    await expect(page.get_by_role("dialog")).to_contain_text("Retry now 1 delivery?")


async def test_the_retry_key_retries_the_row_that_was_gone_to(scene: Scene, look: Look) -> None:
    first, second = await failing(scene, 2)
    page = await look(QUEUE)
    scene.receiver.says(200)
    await page.locator(f"#row-{second.delivery_id}").focus()
    await page.keyboard.press("r")
    await expect(page.get_by_text("Retry succeeded. Event removed from the queue.")).to_be_visible()
    await scene.until_state(second, DeliveryState.DELIVERED)
    assert (await scene.delivery(first)).state is DeliveryState.PENDING


async def test_all_that_match_is_not_meant_any_more_when_the_last_row_is_unticked(scene: Scene, look: Look) -> None:
    await failing(scene, 3)
    page = await look(QUEUE)
    box = page.locator(BOXES).first
    await box.check()
    await page.locator(ALL).check()
    await box.uncheck()
    await box.check()
    await expect(page.locator(ALL)).not_to_be_checked()
    await page.locator(BAR).get_by_role("button", name="Retry now").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Retry now 1 delivery?")


async def test_how_many_match_is_refreshed_with_the_list(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    await failing(scene, 1, "other-erp")
    await refreshed(page)
    await page.locator(BOXES).first.check()
    await expect(page.locator(BAR)).to_contain_text("all 3 that match")


async def test_a_refresh_leaves_the_bar_and_what_is_ticked_in_it(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    await page.locator(BOXES).first.check()
    await page.locator(ALL).check()
    await refreshed(page)
    await expect(page.locator(BAR)).to_contain_text("1 selected")
    await expect(page.locator(ALL)).to_be_checked()
    await expect(page.locator(ALL)).to_be_focused()


async def test_a_list_that_becomes_empty_offers_nothing_to_act_upon(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    scene.receiver.says(200)
    scene.leap(3 * 3_600)
    await scene.until_state(delivery, DeliveryState.DELIVERED)
    await refreshed(page)
    await expect(page.get_by_text("No deliveries wait for a retry.")).to_be_visible()
    assert await page.locator(ALL).count() == 0


async def test_what_is_ticked_is_retried_without_scripts_and_the_menu_is_there_on_a_narrow_screen(
    scene: Scene, api: Api, links: SignInLinks, browser: Browser
) -> None:
    deliveries = await failing(scene, 2)
    scene.receiver.says(200)
    context = await opened(browser, base_url=api.url, java_script_enabled=False, viewport={"width": 420, "height": 850})
    page = await context.new_page()
    await page.goto("/console/sign-in")
    await page.get_by_label("Key").fill(api.key)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("link", name="Retry queue").click()
    assert await page.get_by_role("button", name=re.compile("Menu|Clear selection|Theme|Shortcuts")).count() == 0
    for box in await page.locator(BOXES).all():
        await box.check()
    await page.locator(BAR).get_by_role("button", name="Retry now").click()
    await page.get_by_role("button", name="Retry now 2").click()
    await page.wait_for_url("**/console/bulk/*")
    for delivery in deliveries:
        await scene.until_state(delivery, DeliveryState.DELIVERED)
    await context.close()
