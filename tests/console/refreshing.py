"""What a live part of a page does by itself every few seconds, at once."""

from __future__ import annotations

from playwright.async_api import Page


async def refreshed(page: Page) -> None:
    """Also while rows are ticked. The answer is in its place when this returns."""
    async with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        await page.evaluate("htmx.trigger(document.getElementById('live'), 'doorstep:refresh')")
    await page.locator("#live:not(.htmx-request)").wait_for()
