"""On a phone, 390 pixels wide: no value is cut off, and a row takes few lines."""

from __future__ import annotations

import re

from playwright.async_api import Locator, expect

from tests.console.chromium import Look
from tests.console.endpoint_pages import open_circuit, page_of
from tests.support.scene import Scene

PHONE = 390


async def test_the_legend_of_a_chart_shows_large_values_whole(scene: Scene, look: Look) -> None:
    page = await look("/console", width=PHONE)
    legend = page.locator("figure[data-chart]").filter(has_text="Events per minute").locator(".u-legend")
    await expect(legend).to_contain_text(re.compile(r"created\d"))
    widths = await legend.evaluate(
        """legend => {
            for (const value of legend.querySelectorAll(".u-value")) value.textContent = "12,345,678";
            return [legend.scrollWidth, legend.clientWidth];
        }"""
    )
    assert widths[0] <= widths[1], widths


async def test_a_change_of_a_circuit_takes_two_lines_and_a_setting_with_a_long_name_is_not_squeezed(
    scene: Scene, look: Look
) -> None:
    endpoint = await open_circuit(scene)
    page = await look(page_of(endpoint), width=PHONE)
    when, became, why = await page.locator("table.log tbody tr").first.locator("td").all()
    assert abs(await _baseline(when) - await _baseline(became)) < 5, "in one line"
    assert await _baseline(why) - await _baseline(when) > 12, "below it"
    await page.goto("/console/settings/installation")
    row = page.locator("tbody tr", has_text="DOORSTEP_RETENTION_DAYS").first
    name, value = row.locator(":scope > *").nth(0), row.locator(":scope > *").nth(1)
    assert await _baseline(value) - await _baseline(name) > 12, "the name has the whole line"


async def _baseline(cell: Locator) -> float:
    box = await cell.bounding_box()
    assert box is not None
    return box["y"] + box["height"]
