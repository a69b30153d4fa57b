"""Keyboard use: every control can be reached, the focus is always visible, and nothing moves the focus away."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from doorstep.console.routes import all_pages
from tests.console.chromium import Look
from tests.console.furnished import House
from tests.console.timers import stop_timers

SCREENS = [
    page.path
    for page in all_pages()
    if page.method == "GET" and "{" not in page.path and not page.path.endswith(("/find", "/export"))
]
ACTS = "main :is(a[href], button, input:not([type=hidden]), select, textarea, summary)"
WALKED = ("/console", "/console/retry-queue", "/console/dead-letters", "/console/dead-letters/letters",
          "/console/endpoints", "/console/endpoints/new", "/console/alerts", "/console/settings")  # fmt: skip
STEPS_MAX = 500
STANDING_STILL = "() => document.querySelector('[data-live]')?.removeAttribute('data-live')"
"""Stops refreshes, because one would remove the marks from the controls that were reached."""
FOCUSED = """() => {
    const one = document.activeElement;
    one.dataset.reached = "";
    const look = getComputedStyle(one);
    return {tag: one.tagName, seen: look.outlineStyle !== "none" && parseFloat(look.outlineWidth) > 0,
            html: one.outerHTML.slice(0, 200)};
}"""


async def test_tab_reaches_everything_in_turn_and_shows_where_it_is(
    house: House, look_around: Look, subtests: pytest.Subtests
) -> None:
    for path in WALKED:
        with subtests.test(path=path):
            tab = await look_around(path)
            await tab.evaluate(STANDING_STILL)
            for _ in range(STEPS_MAX):
                await tab.keyboard.press("Tab")
                focused = await tab.evaluate(FOCUSED)
                if focused["tag"] == "BODY":
                    break
                assert focused["seen"], focused["html"]
            else:
                pytest.fail("the focus goes round without an end")
            acts = tab.locator(ACTS).locator("visible=true")
            assert await acts.count() > 0
            assert [
                await one.evaluate("it => it.outerHTML") for one in await acts.all() if not await _was_reached(one)
            ] == []


async def _was_reached(act: Locator) -> bool:
    """Whether the focus reached this control. In a group of radio buttons one is enough, because arrow keys reach the
    others."""
    return bool(
        await act.evaluate(
            """it => "reached" in it.dataset || it.disabled || (it.type === "radio" &&
                [...document.getElementsByName(it.name)].some(one => "reached" in one.dataset))"""
        )
    )


async def test_a_refresh_leaves_the_focus_where_it_is_on_every_screen(house: House, look_around: Look) -> None:
    tab = await look_around("/console")
    looked_at = 0
    for path in SCREENS:
        await tab.goto(path)
        inside = tab.locator("#live :is(a[href], button, tr[tabindex])").locator("visible=true")
        if not await tab.locator("[data-live]").count() or not await inside.count():
            continue
        await inside.nth(await inside.count() - 1).focus()
        before = await tab.evaluate("document.activeElement.outerHTML.slice(0, 60)")
        await _refreshed(tab)
        assert await tab.evaluate("document.activeElement.outerHTML.slice(0, 60)") == before, path
        looked_at += 1
    assert looked_at >= 6


async def _refreshed(tab: Page) -> None:
    async with tab.expect_response(lambda answer: answer.request.headers.get("hx-request") is not None):
        await tab.keyboard.press(".")
    await tab.locator("#live:not(.htmx-request)").wait_for()


async def test_a_dialog_keeps_the_focus_and_gives_it_back(house: House, look_around: Look) -> None:
    tab = await look_around("/console/retry-queue")
    opener = tab.get_by_role("link", name="Skip", exact=True).first
    await opener.focus()
    await tab.keyboard.press("Enter")
    dialog = tab.locator("dialog[open]")
    await expect(dialog).to_be_visible()
    places = set()
    for _ in range(12):
        await tab.keyboard.press("Tab")
        places.add(
            await tab.evaluate("document.activeElement.closest('dialog') ? 'inside' : document.activeElement.tagName")
        )
    assert places <= {"inside", "BODY"}  # BODY: the browser's own controls
    await tab.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(opener).to_be_focused()


async def test_the_keys_lead_to_every_screen_of_the_menu_and_help_lists_them(house: House, look_around: Look) -> None:
    tab = await look_around("/console/audit", alone=True)
    await stop_timers(tab)  # the second key of a shortcut may follow after any delay
    for link in await tab.locator("nav [data-go]").all():
        key, path = str(await link.get_attribute("data-go")), str(await link.get_attribute("href"))
        await tab.keyboard.press("g")
        async with tab.expect_navigation():
            await tab.keyboard.press(key)
        assert tab.url.partition("?")[0].endswith(path) or f"{path}/" in tab.url
    await tab.keyboard.press("?")
    await expect(tab.locator("#help[open]")).to_contain_text("Retry queue")
    await tab.keyboard.press("Escape")
    await tab.goto("/console/retry-queue")
    await tab.keyboard.press("/")
    await expect(tab.get_by_label("Event type", exact=True)).to_be_focused()


async def test_the_first_tab_offers_to_skip_the_menu(house: House, look_around: Look) -> None:
    tab = await look_around("/console/retry-queue")
    await tab.keyboard.press("Tab")
    await expect(tab.get_by_text("Skip to content")).to_be_focused()
    await tab.keyboard.press("Enter")
    assert await tab.evaluate("document.activeElement.id") == "main"
