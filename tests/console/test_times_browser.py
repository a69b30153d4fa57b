"""Times are shown and entered in the time zone of the browser, with UTC on hover, before and after a live refresh."""

from __future__ import annotations

import re
from urllib.parse import quote

from playwright.async_api import Browser, Page, expect

from tests.console.chromium import opened
from tests.console.endpoint_pages import page_of
from tests.console.queueing import QUEUE, failing
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.scene import Scene

BOTH = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d):(\d\d):\d\d\n(\d{4}-\d\d-\d\d) (\d\d):(\d\d):\d\d\.\d+ UTC$")


async def test_a_time_is_local_with_utc_on_hover_and_stays_so_after_a_refresh(
    scene: Scene, api: Api, browser: Browser
) -> None:
    (delivery,) = await failing(scene, 1)
    page = await in_kolkata(api, browser)
    await page.goto(QUEUE)
    time = page.locator(f"#row-{delivery.delivery_id} time").last
    for _ in range(2):
        await expect(time).to_have_attribute("title", BOTH)
        title = BOTH.match(await time.get_attribute("title") or "")
        assert title
        local, utc = (int(title[at]) * 60 + int(title[at + 1]) for at in (2, 5))
        assert (local - utc) % (24 * 60) == 330
        async with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
            await page.keyboard.press(".")
    await page.goto(f"/console/deliveries/{delivery.delivery_id}/attempts/1")
    started = page.locator("time[data-at]").first
    utc_text = str(await started.get_attribute("title"))
    assert utc_text.endswith(" UTC") and (await started.text_content()) != utc_text
    await page.context.close()


async def test_a_time_is_entered_and_shown_again_in_local_time(scene: Scene, api: Api, browser: Browser) -> None:
    endpoint = await scene.endpoint("/ok", name="ok")
    page = await in_kolkata(api, browser)
    await page.goto("/console/events?created_from=2026-01-31T20:00")
    created = page.get_by_label("Created from", exact=True)
    await expect(created).to_have_value("2026-02-01T01:30")
    await expect(created).to_have_attribute("title", re.compile(r"^Asia/(Kolkata|Calcutta)$"))
    await created.fill("2026-02-01T02:00:07")
    await page.get_by_role("button", name="Filter").click()
    await expect(page).to_have_url(re.compile(re.escape(quote("created_from=2026-01-31T20:30:07.000Z", "="))))
    await expect(created).to_have_value("2026-02-01T02:00:07")
    await page.goto(f"{page_of(endpoint)}")
    await page.get_by_role("link", name="Replay").click()
    await page.get_by_label("Accepted from", exact=True).fill("2026-02-01T02:00")
    await page.get_by_role("button", name="Count").click()
    accepted_from = page.locator("#question tr", has_text="Accepted from").locator("time")
    await expect(accepted_from).to_have_attribute("datetime", re.compile("2026-01-31T20:30:00"))
    await expect(accepted_from).to_have_text("2026-02-01 02:00:00")
    await page.context.close()


async def test_a_time_that_is_asked_for_again_beside_an_error_stays_what_it_was(
    scene: Scene, api: Api, browser: Browser
) -> None:
    page = await in_kolkata(api, browser)
    await page.goto("/console/alerts/silences/new")
    until = page.get_by_label("Or until", exact=True)
    await until.fill("2020-02-01T02:00:00")
    await page.get_by_role("button", name="Silence").click()
    await expect(page.locator(".error-words")).to_be_visible()
    await expect(until).to_have_value("2020-02-01T02:00")
    await page.context.close()


async def in_kolkata(api: Api, browser: Browser) -> Page:
    """A page of a signed-in user whose time zone is UTC+05:30, without summer time."""
    visitor = await Console(api.url).sign_in(api.key)
    context = await opened(browser, base_url=api.url, timezone_id="Asia/Kolkata")
    session = visitor.cookies["doorstep_session"]
    await context.add_cookies([{"name": "doorstep_session", "value": session, "domain": "127.0.0.1", "path": "/"}])
    return await context.new_page()


async def test_without_scripts_a_time_is_in_utc(scene: Scene, console: Console) -> None:
    (delivery,) = await failing(scene, 1)
    source = (await console.get(f"/console/deliveries/{delivery.delivery_id}/attempts/1")).source
    assert re.search(r'<time datetime="[^"]+Z" data-at>[\d-]+ [\d:.]+ UTC</time>', source)
    source = (await console.get("/console/events?created_from=2026-01-31T20:00:07.000Z")).source
    assert re.search(r'>Created from \(UTC\)</label><input [^>]*value="2026-01-31T20:00:07"', source)
