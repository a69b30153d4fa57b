"""Several hundred hostile texts in every field that a person or a receiver can fill: every screen shows them as plain
text.

Over HTTP: no page that shows them has an element or an attribute that it would not have with harmless texts. In
Chromium: nothing runs, nothing is loaded from elsewhere, and every text can be read as it was written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from playwright.async_api import Page as Tab

from doorstep.console.request import Page
from doorstep.console.routes import all_pages
from tests.console.chromium import Look, looking
from tests.console.furnished import HostileWords, House, TamedWords, built
from tests.console.hostile import HOSTILE
from tests.console.markup import elements, fields_of, shapes
from tests.console.visiting import Console
from tests.support.migrated_file import copy_migrated

GETS = [page for page in all_pages() if page.method == "GET"]
LISTS = [page for page in GETS if "{" not in page.path]
PLACES = 12
"""How many things of each kind are checked over HTTP. The browser tests check three of each kind, and all lists."""
PAGES_OF_A_LIST = 8
UNSEEN = {"code", "policy name"}
"""Fields whose texts a page shows only in part or shortened."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def feared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with built(_new_url(tmp_path_factory.mktemp("feared")), HostileWords()) as house:
        yield house


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def harmless(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with built(_new_url(tmp_path_factory.mktemp("harmless")), TamedWords()) as house:
        yield house


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def usual(harmless: House) -> set[tuple[str, str]]:
    """All elements and attributes of the pages when every text is harmless."""
    visitor = await harmless.visitor()
    found: set[tuple[str, str]] = set()
    for page in GETS:
        for place in range(4):
            found |= shapes((await visitor.get(_asked(harmless, page, place))).source)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(feared: House) -> Console:
    return await feared.visitor()


async def test_no_text_makes_an_element_or_an_attribute(
    feared: House, owner: Console, usual: set[tuple[str, str]], subtests: pytest.Subtests
) -> None:
    for page in GETS:
        with subtests.test(page=page.path):
            for path in [_asked(feared, page, place) for place in range(PLACES if "{" in page.path else 1)]:
                shown = await owner.get(path)
                if shown.headers["content-type"].startswith("text/html"):
                    assert shapes(shown.source) - usual == set(), path
                    assert _foreign(shown.source) == [], path
                else:
                    assert shown.headers["content-disposition"].startswith("attachment"), path
                    assert shown.headers["content-type"].startswith(("application/", "text/csv")), path


@pytest.mark.full
async def test_no_search_and_no_field_of_a_form_gives_back_anything_but_text(
    feared: House, owner: Console, usual: set[tuple[str, str]]
) -> None:
    """What a person typed appears again in the field, in sentences, and in links to the next page."""
    texts = [*HOSTILE[::7], "".join(HOSTILE[:40])]
    for page in GETS:
        path = feared.path(page)
        names = {*fields_of((await owner.get(_asked(feared, page, 0))).source), "back", "cursor"}
        for place, name in enumerate(sorted(names)):
            shown = await owner.get(f"{path}?{urlencode({name: texts[place % len(texts)]})}")
            if shown.headers["content-type"].startswith("text/html"):
                refused = await owner.get(f"{path}?{urlencode({name: 'nonsense'})}")
                assert shapes(shown.source) - usual - shapes(refused.source) == set(), shown.path
                assert _foreign(shown.source) == [], shown.path


@pytest_asyncio.fixture(loop_scope="session")
async def look_at(feared: House, browser: Browser) -> AsyncIterator[Look]:
    async with looking(browser, feared.api.url, feared.links, feared.scene.doorstep.components.keys) as look:
        yield look


async def test_in_a_browser_nothing_runs_nothing_is_loaded_and_every_text_can_be_read(
    feared: House, look_at: Look
) -> None:
    tab = await look_at("/console")
    read: list[str] = []
    for path in _tour(feared):
        read += [text async for text in _read(tab, path)]
    seen = "\n".join(read)
    missing = [(field, text) for field, text in feared.words.planted if field not in UNSEEN and not _is_in(text, seen)]
    assert missing == [], str(Counter(field for field, _ in missing))


def _tour(house: House) -> Iterator[str]:
    """The paths of all lists, and of three records of each kind."""
    for page in GETS:
        for place in range(3 if "{" in page.path else 1):
            yield _asked(house, page, place)


async def _read(tab: Tab, path: str) -> AsyncIterator[str]:
    """The text of a page and of the pages that follow it in a list, with everything expanded."""
    for _ in range(PAGES_OF_A_LIST):
        if await _is_file(tab, path):
            return
        answer = await tab.goto(path)
        assert answer is not None and answer.status < 500, path
        assert await tab.evaluate("window.__pwned") is None, path
        assert await tab.locator("iframe, object, embed, base, style, meta[http-equiv], svg script").count() == 0, path
        yield _plain(await tab.evaluate("document.body.textContent"))
        yield _plain(
            await tab.evaluate("[...document.querySelectorAll('input,textarea')].map(x => x.value).join('\\n')")
        )
        following = tab.locator("a[rel=next]")
        if not await following.count():
            return
        path = str(await following.first.get_attribute("href"))


async def _is_file(tab: Tab, path: str) -> bool:
    answer = await tab.request.fetch(path, method="HEAD")
    return "attachment" in answer.headers.get("content-disposition", "")


def _asked(house: House, page: Page, place: int) -> str:
    """A page's path; if the page asks for confirmation of an action on selected items, all items are selected."""
    path = house.path(page, place)
    return f"{path}?all=yes" if page.path.rsplit("/", 1)[1] in ("retry", "skip", "resolve", "delete") else path


def _foreign(source: str) -> list[str]:
    """Links and other URLs that lead away from the console."""
    names = ("href", "src", "action", "formaction", "hx-get", "data-open", "srcdoc", "poster", "data")
    found = (one.attributes[name] for one in elements(source) for name in names if name in one.attributes)
    return [one for one in found if not re.match(r"/(?![/\\])|[#?]|https://github\.com/|$", one)]


def _is_in(text: str, seen: str) -> bool:
    """Whether the page shows the text as it is, or escaped as in JSON."""
    ways = (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    return any(_plain(way) in seen for way in ways)


def _plain(text: str) -> str:
    """The text with single spaces, and without characters that browsers drop."""
    return " ".join(text.replace("\0", "").split())


def _new_url(folder: Path) -> str:
    return f"sqlite:///{copy_migrated(folder / 'doorstep.db')}"


async def test_the_texts_would_do_harm_where_they_are_not_taken_for_text(browser: Browser) -> None:
    """If this failed, the tests above could never fail. No request goes to another machine."""
    at_home = [text for text in HOSTILE if "evil.example" not in text]
    tab = await browser.new_page()
    await tab.set_content(f"<p>{''.join(at_home)}</p>")
    assert await tab.evaluate("window.__pwned") == 1
    await tab.close()
    elements_made = [text for text in HOSTILE if "<" in text and shapes(f"<p>{text}</p>") > {("p", "")}]
    assert len(HOSTILE) > 300 and len(elements_made) > 200
    assert _foreign('<a href="//evil.example">x</a><a href="javascript:x">x</a><a href="/console">x</a>') == [
        "//evil.example",
        "javascript:x",
    ]
