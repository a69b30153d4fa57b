"""The counts in the menu: how many deliveries wait for a retry, are dead letters, and how many alerts are open."""

from __future__ import annotations

from playwright.async_api import expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console import badges
from doorstep.console.badges import badges_of
from tests.console.chromium import Look
from tests.console.queueing import QUEUE, failing
from tests.console.visiting import Console
from tests.support.scene import Scene


async def test_the_menu_counts_what_waits_for_an_operator_up_to_a_bound(scene: Scene, console: Console) -> None:
    assert set((await badges_of(scene.doorstep.components, DEFAULT_ORG)).values()) == {""}
    first, *_ = await failing(scene, 3)
    assert 'id="count-r">3</span>' in (await console.get("/console/settings/about")).source
    await console.get(QUEUE)
    await console.post(f"{QUEUE}/skip", id=first.delivery_id, reason="x")
    shown = await badges_of(scene.doorstep.components, DEFAULT_ORG)
    assert (shown[QUEUE], shown["/console/dead-letters"]) == ("2", "1")
    assert badges._badge(1_000, 999) == "999+"


async def test_a_count_follows_the_list_without_a_new_page(scene: Scene, look: Look) -> None:
    first, *_ = await failing(scene, 2)
    page = await look(QUEUE)
    await expect(page.locator("#count-r")).to_have_text("2")
    await page.locator(f"#row-{first.delivery_id}").get_by_role("link", name="Skip").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("not needed")
    await page.get_by_role("dialog").get_by_role("button", name="Skip 1").click()
    await expect(page.locator("#count-r")).to_have_text("1")
    await expect(page.locator("#count-d")).to_have_text("1")
