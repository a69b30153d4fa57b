"""A page part that refreshes itself reports its state correctly: failed answers, ended sessions and the time of its
data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from playwright.async_api import Page, Route, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import Role
from tests.console.chromium import Look
from tests.console.queueing import QUEUE, failing
from tests.console.refreshing import refreshed
from tests.console.timers import stop_timers
from tests.support.api import Api
from tests.support.scene import Scene

SAYS = "#live-status"


@pytest.mark.key_story
async def test_an_answer_that_tells_of_a_problem_is_said_and_changes_nothing_on_the_page(
    scene: Scene, look: Look
) -> None:
    await failing(scene, 1)
    page = await look(QUEUE)
    title = await page.title()

    async def away(route: Route) -> None:
        await route.fulfill(status=503, content_type="text/html", body="<title>Away</title><h1>The store is away</h1>")

    await page.route(f"**{QUEUE}", away)
    await refreshed(page)
    await expect(page.locator(SAYS)).to_have_text("Could not refresh. Try again")
    assert await page.title() == title
    assert await page.locator("#live tbody tr").count() == 1
    await page.unroute(f"**{QUEUE}")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(SAYS)).to_have_text("Live")
    assert await page.get_by_role("button", name="Try again").count() == 0


async def test_coming_back_to_a_page_refreshes_it_unless_rows_are_ticked(scene: Scene, look: Look) -> None:
    await failing(scene, 1)
    page = await look(QUEUE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    await page.locator("input[data-row]").check()
    await _come_back(page)
    await page.evaluate("fetch('/console/static/icon.svg')")  # all earlier requests have been seen by now
    assert asked == []
    await page.get_by_role("button", name="Clear selection").click()
    async with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        await _come_back(page)


async def _come_back(page: Page) -> None:
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_what_it_says_is_written_only_when_it_changes(scene: Scene, look: Look) -> None:
    page = await look(QUEUE)
    await expect(page.locator(SAYS)).to_have_text("Live")
    await page.evaluate(
        """() => { window.told = 0; new MutationObserver(() => { window.told += 1; }).observe(
            document.getElementById("live-status"), {childList: true, characterData: true, subtree: true}); }"""
    )
    for _ in range(3):
        await refreshed(page)
    assert await page.evaluate("window.told") == 0


async def test_a_session_that_ended_leads_to_the_sign_in_and_from_there_back(
    scene: Scene, api: Api, look: Look
) -> None:
    place = f"{QUEUE}?event_type=order.*"
    page = await look(place, role=Role.OPERATOR)
    keyring = scene.doorstep.components.keys
    (key,) = [one for one in await keyring.keys(DEFAULT_ORG) if one.role is Role.OPERATOR]
    await keyring.revoke(DEFAULT_ORG, key.key_id, "test")
    await page.keyboard.press(".")
    await page.wait_for_url(f"**/console/sign-in?next={quote(place)}")
    await page.get_by_label("Key").fill(api.key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"**{place}")


async def test_times_are_told_by_the_clock_of_the_server(scene: Scene, look: Look) -> None:
    await failing(scene, 1)
    page = await look(alone=True)
    await page.clock.install(time=datetime.now(UTC) + timedelta(hours=2))
    for path in ("/console/settings/keys", QUEUE):  # one page that does not refresh itself, and one that does
        await page.goto(path)
        await page.clock.run_for(5_500)
        times = await page.locator("main time").all_text_contents()
        assert times
        assert not [one for one in times if "h" in one and "ago" in one], times


async def test_a_text_that_cannot_be_copied_is_selected(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint()
    page = await look(f"/console/endpoints/{endpoint.endpoint_id}", alone=True)
    await page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
    await stop_timers(page)
    await page.get_by_role("button", name="Copy").first.click()
    await expect(page.get_by_role("button", name="Selected")).to_be_visible()
    assert await page.evaluate("getSelection().toString()") == str(endpoint.endpoint_id)
