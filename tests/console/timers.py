"""Timers of a page that a test does not want to race with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.async_api import Page


async def stop_timers(page: Page) -> None:
    """From now on none of them fires: a label that says for a moment what was done goes on saying it."""
    await page.clock.install()
    await page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
