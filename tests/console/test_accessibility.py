"""No screen violates an accessibility rule of axe-core: in both themes, empty and full, wide and narrow."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from playwright.async_api import Page as Tab

from doorstep.console.request import Page
from doorstep.console.routes import all_pages
from doorstep.model.org import Role
from tests.console.chromium import looking, opened
from tests.console.furnished import House, built
from tests.support.migrated_file import copy_migrated

FILES = ("/export", "/payload", "/body")
SCREENS = [page for page in all_pages() if page.method == "GET" and not page.path.endswith(FILES)]
PLAIN = [page for page in SCREENS if "{" not in page.path]
WIDE, NARROW, NARROWEST = 1360, 390, 320
STANDING_STILL = "() => document.querySelector('[data-live]')?.removeAttribute('data-live')"
"""Stops refreshes, because one could remove an element that is too wide before the test sees it."""
AXE = Axe()
RUN = "options => axe.run(document, {...options, resultTypes: ['violations']}).then(results => results.violations)"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
COLOUR_RULES = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The only rules that a second theme can violate, because a theme changes neither elements nor positions."""
WRONG = (
    "/console/events/00000000-0000-0000-0000-000000000000",
    "/console/retry-queue?endpoint_id=nonsense",
    "/console/retry-queue?event_type=nobody.has.this",
)


async def violations(tab: Tab, *themes: str) -> list[str]:
    """Violations in both themes, or in the themes named; each with its rule, its description and its elements."""
    found = []
    await tab.evaluate(AXE.axe_script)
    for number, theme in enumerate(themes or ("light", "dark")):
        await tab.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        for one in await tab.evaluate(RUN, RULES if number == 0 else COLOUR_RULES):
            places = [node["html"][:200] + " " + str(node.get("failureSummary", ""))[:300] for node in one["nodes"][:3]]
            found.append(f"{theme} {tab.url} {one['id']}: {one['help']} {places}")
    return found


def chosen(house: House, page: Page) -> str:
    """A page's path; if the page asks for confirmation of an action on selected items, all items are selected."""
    return f"{house.path(page)}?all=yes"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tab(house: House, browser: Browser) -> AsyncIterator[Tab]:
    """One tab for all screens, signed in as an admin."""
    async with looking(browser, house.api.url, house.links, house.scene.doorstep.components.keys) as look:
        yield await look("/console")


@pytest.fixture
def look_around() -> None:
    """Overrides the fixture; requesting it by name makes these tests run on one store."""


async def test_a_screen_has_no_violation_wide_or_narrow_and_does_not_scroll_sideways(
    look_around: None, house: House, tab: Tab, subtests: pytest.Subtests
) -> None:
    for page in SCREENS:
        with subtests.test(page=page.path):
            await tab.set_viewport_size({"width": WIDE, "height": 850})
            await tab.goto(chosen(house, page))
            await tab.evaluate(STANDING_STILL)
            assert await violations(tab) == []
            await tab.set_viewport_size({"width": NARROW, "height": 850})
            assert await violations(tab, "light") == []
            await _fits(tab, NARROW, NARROWEST)


async def test_the_letters_of_one_cause_can_be_read_on_a_narrow_screen(
    look_around: None, house: House, tab: Tab
) -> None:
    await tab.goto("/console/dead-letters")
    await tab.goto(str(await tab.locator("tr[data-open]").first.get_attribute("data-open")))
    await tab.evaluate(STANDING_STILL)
    await _fits(tab, NARROW, NARROWEST)
    words = await tab.locator(".cause > div").first.bounding_box()
    assert words is not None
    assert words["width"] > NARROWEST / 2
    assert await violations(tab, "light") == []


async def _fits(tab: Tab, *widths: int) -> None:
    """No page is wider than the screen; wide parts such as tables scroll separately. Charts resize after a short
    delay."""
    for width in widths:
        await tab.set_viewport_size({"width": width, "height": 850})
        await tab.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


async def test_questions_that_are_open_over_a_list_have_no_violation(look_around: None, house: House, tab: Tab) -> None:
    await tab.set_viewport_size({"width": WIDE, "height": 850})
    endpoint = f"/console/endpoints/{house.ids['endpoint_id'][0]}"
    for path in ("/console/retry-queue", "/console/dead-letters/letters", endpoint):
        await tab.goto(path)
        await tab.locator("main a[data-dialog]").first.click()
        await tab.locator("dialog[open]").wait_for()
        assert await violations(tab) == []


async def test_the_list_of_keys_has_no_violation(look_around: None, house: House, tab: Tab) -> None:
    await tab.goto("/console")
    await tab.keyboard.press("?")
    await tab.locator("#help[open]").wait_for()
    assert await violations(tab) == []


async def test_a_page_that_says_what_is_wrong_has_no_violation(
    look_around: None, house: House, tab: Tab, subtests: pytest.Subtests
) -> None:
    for path in WRONG:
        with subtests.test(path=path):
            await tab.goto(path)
            assert await violations(tab) == []


async def test_what_a_viewer_sees_and_is_refused_has_no_violation(
    look_around: None, house: House, browser: Browser
) -> None:
    async with looking(browser, house.api.url, house.links, house.scene.doorstep.components.keys) as look:
        tab = await look("/console/retry-queue", Role.VIEWER)
        assert await violations(tab) == []
        await tab.goto("/console/endpoints/new")
        assert await violations(tab) == []


async def test_the_page_to_sign_in_has_no_violation(look_around: None, house: House, browser: Browser) -> None:
    tab = await (await opened(browser, base_url=house.api.url)).new_page()
    await tab.goto("/console/sign-in")
    assert await violations(tab) == []
    await tab.get_by_label("API key").fill("dsk_wrong")
    await tab.keyboard.press("Enter")
    await tab.locator(".said.bad").wait_for()
    assert await violations(tab) == []
    await tab.context.close()


# -- an empty house ---------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    url = f"sqlite:///{copy_migrated(tmp_path_factory.mktemp('bare') / 'doorstep.db')}"
    async with (
        built(url) as house,
        looking(browser, house.api.url, house.links, house.scene.doorstep.components.keys) as look,
    ):
        yield await look("/console")


async def test_a_screen_that_has_nothing_to_show_has_no_violation(bare: Tab, subtests: pytest.Subtests) -> None:
    for page in PLAIN:
        with subtests.test(page=page.path):
            await bare.goto(page.path)
            assert await violations(bare) == []


async def test_a_violation_would_be_found(browser: Browser) -> None:
    """If this failed, the tests above could never fail."""
    tab = await browser.new_page()
    await tab.set_content(
        '<html><body><img src="x"><input><p style="color:#ddd;background:#fff">pale</p></body></html>'
    )
    found = " ".join(await violations(tab))
    for rule in ("image-alt", "label", "color-contrast", "html-has-lang", "document-title"):
        assert f" {rule}:" in found
    await tab.close()


async def test_a_colour_that_is_too_pale_in_the_dark_alone_would_be_found(browser: Browser) -> None:
    tab = await browser.new_page()
    dark = "@media (prefers-color-scheme: dark) { body { background: #111; color: #333; } }"
    await tab.set_content(
        f'<html lang="en"><title>t</title><style>{dark}</style><body><main><h1>t</h1><p>pale</p></main></body></html>'
    )
    found = await violations(tab)
    assert [one.split()[0] for one in found] == ["dark"] and " color-contrast:" in found[0]
    await tab.close()
