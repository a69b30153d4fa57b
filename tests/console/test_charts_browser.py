"""Charts: the legend and the text for screen readers give the latest values, and axis marks use natural steps."""

from __future__ import annotations

import re

from playwright.async_api import expect

from tests.console.chromium import Look
from tests.support.scene import Scene

MEASURES = "import(document.querySelector('script[type=module]').src.replace('console.js', 'measures.js'))"


async def test_a_chart_tells_its_latest_values_without_a_mouse(scene: Scene, look: Look) -> None:
    page = await look("/console")
    chart = page.locator("figure[data-chart]").filter(has_text="Events per minute")
    await expect(chart.locator("[data-plot]")).to_have_attribute(
        "aria-label", re.compile(r"^Events per minute, at [\d-]+ [\d:]+: created \d+, delivered \d+, failed \d+$")
    )
    await expect(chart.locator(".u-legend")).to_contain_text(re.compile(r"Time\d\d:\d\d.*created\d"))
    await chart.locator(".u-over").hover(position={"x": 5, "y": 20})
    await page.mouse.move(0, 0)
    assert "--" not in str(await chart.locator(".u-legend").text_content())


async def test_axes_are_marked_in_the_steps_that_people_count_time_and_rates_in(scene: Scene, look: Look) -> None:
    page = await look("/console/settings/about")
    said = await page.evaluate(
        f"""async () => {{
            const {{ scale, SPANS, worded }} = await {MEASURES};
            return [SPANS.filter(one => one >= 1 && one <= 3600).map(one => worded(one, "s")),
                    [3, 12, 40, 60].map(one => scale("%", 0, one)[1]), worded(0, "s"), worded(99.97, "%")];
        }}"""
    )
    times = ["1 s", "2 s", "5 s", "10 s", "30 s", "1 min", "2 min", "5 min", "10 min", "30 min", "1 h"]
    assert said == [times, [10, 25, 50, 100], "0", "99.9%"]
