"""Every screen opens in a browser with all kinds of content that it can show; tests marked `key_story` perform the
actions."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.console.chromium import Look
from tests.console.furnished import House
from tests.console.test_accessibility import SCREENS, chosen


@pytest.mark.key_story
async def test_every_screen_opens_and_its_scripts_run(
    house: House, look_around: Look, subtests: pytest.Subtests
) -> None:
    """`look_around` fails at the end if a script raised, broke the content policy, or sent a request to another
    server."""
    tab = await look_around("/console")
    for page in SCREENS:
        with subtests.test(page=page.path):
            answer = await tab.goto(chosen(house, page))
            assert answer is not None and answer.status in (200, 422)  # an empty selection is refused
            await expect(tab.locator("h1")).to_have_count(1)
            if await tab.locator("[data-live]").count():
                await expect(tab.locator("#live-status")).to_have_text("Live")
