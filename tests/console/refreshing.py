"""Triggers immediately the refresh that a live page part otherwise does every few seconds."""

from __future__ import annotations

from playwright.async_api import Page


async def refreshed(page: Page) -> None:
    """Refresh even while rows are selected. When this returns, the page shows the new content."""
    async with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        await page.evaluate("htmx.trigger(document.getElementById('live'), 'doorstep:refresh')")
    await page.locator("#live:not(.htmx-request)").wait_for()
