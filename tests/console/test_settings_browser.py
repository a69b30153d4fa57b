"""Keys in a browser: a key is created, shown once, used, and revoked."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.endpoint import Slo
from tests.console.chromium import Look, opened
from tests.support.api import Api
from tests.support.scene import Scene

SETTINGS = "/console/settings"


@pytest.mark.key_story
async def test_a_key_is_made_shown_once_used_and_revoked(scene: Scene, api: Api, look: Look, browser: Browser) -> None:
    page = await look(SETTINGS)
    await page.get_by_role("link", name="New key").click()
    question = page.get_by_role("dialog")
    await question.get_by_label("Name").fill("night shift")
    await question.get_by_label("Role").select_option("viewer")
    await question.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="Created night shift")).to_be_visible()
    key = await page.locator("#secret").inner_text()
    assert key.startswith("dsk_") and key not in page.url
    await page.get_by_role("link", name="Go to keys").click()
    row = page.locator("tr", has_text="night shift")
    await expect(row).to_contain_text("viewer")
    assert key not in await page.content()

    guest = await (await opened(browser, base_url=api.url)).new_page()
    await guest.goto("/console/sign-in")
    await guest.get_by_label("API key").fill(key)
    await guest.get_by_role("button", name="Sign in").click()
    await expect(guest.get_by_role("heading", name="Overview")).to_be_visible()

    await row.get_by_role("link", name="Revoke").click()
    await expect(question).to_contain_text("Revoke night shift?")
    await question.get_by_label("Reason").fill("the shift is over")
    await question.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_text("was revoked.")).to_be_visible()
    await expect(page.locator("tr", has_text="night shift")).to_contain_text("revoked")
    await guest.goto("/console")
    await expect(guest.get_by_role("button", name="Sign in")).to_be_visible()
    await guest.context.close()


async def test_the_target_is_changed(scene: Scene, look: Look) -> None:
    page = await look(f"{SETTINGS}/target")
    await page.get_by_label("Successful deliveries").fill("99.5")
    await page.get_by_label("95% arrive within").fill("2m")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The target was saved.")).to_be_visible()
    found = await scene.doorstep.components.reporter.default_slo(DEFAULT_ORG)
    assert found == Slo(success=0.995, p95_seconds=120.0)
