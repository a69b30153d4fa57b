"""Stops the timers of a page, so that a test does not race with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.async_api import Page


async def stop_timers(page: Page) -> None:
    """Stop all timers, so that a label that shows the result of an action for a moment keeps showing it."""
    await page.clock.install()
    await page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
