"""What a page shows while it waits for its server, when the server is down, and when it is back."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

from playwright.async_api import Browser, Page, Route, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import Role
from tests.console.chromium import Look, opened
from tests.support.api import Api
from tests.support.ports import free_port
from tests.support.program import Program, wait_for
from tests.support.scene import Scene

SAYS = "#live-status"


async def test_a_slow_answer_is_announced_and_the_page_is_live_again_when_it_is_there(scene: Scene, look: Look) -> None:
    page = await look("/console/retry-queue")
    gate = asyncio.Event()

    async def held(route: Route) -> None:
        await gate.wait()
        await route.continue_()

    await page.route("**/console/retry-queue", held)
    await page.keyboard.press(".")
    await expect(page.locator(SAYS)).to_have_text("Loading…")
    bar = "getComputedStyle(document.body, '::before')"
    assert await page.evaluate(f"{bar}.position") == "fixed"
    gate.set()
    await expect(page.locator(SAYS)).to_have_text("Live")
    assert await page.evaluate(f"{bar}.content") == "none"


async def test_a_question_that_is_slow_to_come_shows_that_it_loads(scene: Scene, look: Look) -> None:
    page = await look("/console/events")
    gate = asyncio.Event()

    async def held(route: Route) -> None:
        await gate.wait()
        await route.continue_()

    await page.route(re.compile("/console/events/send"), held)
    await page.get_by_role("link", name=re.compile("^Send")).click()
    await page.locator("html[data-loading]").wait_for(state="attached")
    gate.set()
    await expect(page.locator("dialog[open]")).to_be_visible()
    assert await page.locator("html[data-loading]").count() == 0


async def test_a_server_that_was_killed_is_told_and_when_it_is_back_the_page_goes_on(
    browser: Browser, tmp_path: Path
) -> None:
    port = str(free_port())
    context = await opened(browser, base_url=f"http://127.0.0.1:{port}")
    page = await context.new_page()
    first = _serve(port, tmp_path)
    try:
        link = wait_for(lambda: first._printed(r"Console: (\S+) \(signs you in once"))
        await page.goto(link)
        await page.goto("/console/retry-queue")
        await expect(page.locator(SAYS)).to_have_text("Live")
        first.signal(signal.SIGKILL)
        first.wait()
        await expect(page.locator(SAYS)).to_have_text("Could not refresh. Try again")
        await _asks_in_vain(page)
        second = _serve(port, tmp_path)
        try:
            wait_for(lambda: second._printed(r"(listens at)"))
            await page.keyboard.press(".")
            await expect(page.locator(SAYS)).to_have_text("Live")
            await expect(page.get_by_text("No deliveries wait for a retry.")).to_be_visible()
        finally:
            second.stop()
    finally:
        first.stop()
        await context.close()


async def _asks_in_vain(page: Page) -> None:
    """A refresh fails, and the page keeps its content."""
    await page.keyboard.press(".")
    await expect(page.get_by_role("heading", name="Retry queue")).to_be_visible()
    await expect(page.locator(SAYS)).to_contain_text("Could not refresh.")


def _serve(port: str, folder: Path) -> Program:
    return Program("serve", "--port", port, folder=folder)


async def test_whoever_loses_the_right_to_look_is_led_to_the_sign_in(scene: Scene, api: Api, look: Look) -> None:
    page = await look("/console/retry-queue", role=Role.OPERATOR)
    keyring = scene.doorstep.components.keys
    (key,) = [one for one in await keyring.keys(DEFAULT_ORG) if one.role is Role.OPERATOR]
    await keyring.revoke(DEFAULT_ORG, key.key_id, "test")
    await page.keyboard.press(".")
    await page.wait_for_url("**/console/sign-in**")
