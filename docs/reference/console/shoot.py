"""Takes screenshots of the console in both themes, from a demo that has run for a while.

doorstep demo                                    and ten minutes later, with the address and the key that it printed:
python docs/reference/console/shoot.py URL KEY             takes all pictures of docs/reference/console.md
python docs/reference/console/shoot.py URL KEY event bulk  takes some
python docs/reference/console/shoot.py URL KEY --every /tmp/pictures
    takes every screen, form and error page, wide and as on a phone, in full length; names what a phone would clip
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, sync_playwright
from shrinking import shrunk

FOLDER = Path(__file__).parent
THEMES = ("light", "dark")
_WIDTH, _HEIGHT = 1360, 850
_PHONE, _ON_PHONE = 390, "-phone"
"""The width of a phone, and the end of the names of pictures with this width."""
_HEIGHT_MIN = 640
"""The height of the menu."""
_HIGHER = {"overview": 1_000, "event": 1_260, "endpoint": 1_000}
"""Screens that need more height to show their important parts."""
_MARGIN = 24
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
_BOTTOM = "Math.max(...[...document.querySelectorAll('main > *')].map(one => one.getBoundingClientRect().bottom))"

_CLIPPED = """[...document.querySelectorAll("button, .button, input, select")]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.textContent.trim() || one.name)"""

Demo = Callable[..., dict[str, Any]]
"""Queries the API of the demo."""


def screens(ask: Demo) -> Iterator[tuple[str, str]]:
    """The name of each screenshot and the path of its screen; pages of single objects show one with a long history."""
    yield "overview", ""
    yield "events", "/events"
    yield "event", f"/events/{_most_retried(ask)}"
    yield "retry-queue", "/retry-queue"
    yield f"retry-queue{_ON_PHONE}", "/retry-queue"
    yield "dead-letters", "/dead-letters"
    yield "endpoints", "/endpoints"
    yield "endpoint", f"/endpoints/{_endpoint(ask, 'crm')}?range=1h"
    yield "endpoint-edit", f"/endpoints/{_endpoint(ask, 'crm')}/edit"
    yield "batch", f"/batches/{_most(ask('batches', limit=100)['batches'], 'attempts')['batch_id']}"
    yield "pipeline", "/pipelines/bill"
    yield "entity", f"/pipelines/bill/{_failed_bill(ask)}"
    yield "alerts", "/alerts"
    yield "audit", "/audit"


def more_screens(ask: Demo) -> Iterator[tuple[str, str]]:
    """The screens and forms that docs/reference/console.md does not show, and error pages."""
    endpoint = f"/endpoints/{_endpoint(ask, 'crm')}"
    letter = f"/deliveries/{ask('dead-letters', limit=1)['dead_letters'][0]['delivery_id']}"
    yield "overview-all-charts", "?charts=all"
    yield "endpoint-deliveries", f"{endpoint}/deliveries"
    yield "endpoint-new", "/endpoints/new"
    yield from ((f"endpoint-{form}", f"{endpoint}/{form}") for form in ("pause", "test", "replay", "rotate", "delete"))
    yield "delivery", letter
    yield "attempt", f"{letter}/attempts/1"
    yield "dead-letter-edit", letter.replace("/deliveries", "/dead-letters") + "/edit"
    yield "dead-letters-delete", "/dead-letters/delete?all=yes"
    yield "retry-queue-retry", "/retry-queue/retry?all=yes"
    for one in ask("bulk", limit=1)["bulk"]:
        yield "bulk-operation", f"/bulk/{one['bulk_id']}"
    for one in ask("alerts", limit=1)["alerts"]:
        yield "alert", f"/alerts/{one['alert_id']}"
    for path in ("events/send", "search?q=order.paid", "alerts/silences", "alerts/silences/new", "alerts/channels/new"):
        yield path.replace("/", "-").partition("?")[0], f"/{path}"
    for path in ("keys/new", "organizations", "target", "installation", "about"):
        yield f"settings-{path}".replace("/", "-"), f"/settings/{path}"
    yield "alert-rules", "/alerts/rules"
    yield "alert-channels", "/alerts/channels"
    yield "batches", "/batches"
    yield "pipelines", "/pipelines"
    yield "settings", "/settings/keys"
    yield "workers", "/workers"
    yield "bulk", "/bulk"
    yield "dead-letters-one-by-one", "/dead-letters/letters"
    yield "not-found", "/nothing"
    yield "invalid-filter", "/retry-queue?endpoint_id=nonsense"


def asking(url: str, key: str) -> Demo:
    def ask(path: str, **query: object) -> dict[str, Any]:
        with urlopen(Request(f"{url}/v1/{path}?{urlencode(query)}", headers={"X-API-Key": key})) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    return ask


def shoot_every(url: str, key: str, folder: Path) -> None:
    ask = asking(url, key)
    chosen = [*screens(ask), *more_screens(ask)]
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
        for theme in THEMES:
            page = _signed_in(browser, url, key, theme)
            for width in (_WIDTH, _PHONE):
                page.set_viewport_size({"width": width, "height": _HEIGHT})
                for name, path in chosen:
                    page.goto(f"{url}/console{path}")
                    page.wait_for_timeout(400)  # charts are drawn
                    page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
                    if clipped := page.evaluate(_CLIPPED):
                        print(f"{name}, {width} px, {theme}: clipped: {', '.join(clipped)}")
        browser.close()


def shoot(url: str, key: str, wanted: set[str]) -> None:
    ask = asking(url, key)
    chosen = [(name, path) for name, path in screens(ask) if not wanted or name in wanted]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
        for theme in THEMES:
            page = _signed_in(browser, url, key, theme)
            for name, path in chosen:
                file = FOLDER / f"{name}-{theme}.png"
                width = _PHONE if name.endswith(_ON_PHONE) else _WIDTH
                file.write_bytes(shrunk(_taken(page, f"{url}/console{path}", width, _HIGHER.get(name, _HEIGHT))))
        browser.close()


def _signed_in(browser: Browser, url: str, key: str, theme: str) -> Page:
    page = browser.new_page(color_scheme="dark" if theme == "dark" else "light")
    page.goto(f"{url}/console/sign-in")
    page.fill("#key", key)
    page.click("button.main")
    return page


def _taken(page: Page, url: str, width: int, height_max: int) -> bytes:
    """A screenshot as high as its content, within bounds."""
    page.set_viewport_size({"width": width, "height": height_max})
    answer = page.goto(url)
    assert answer is not None and answer.ok, f"{url} cannot be shown"
    page.wait_for_timeout(1_000)  # charts are drawn
    bottom = round(page.evaluate(_BOTTOM)) + _MARGIN
    page.set_viewport_size({"width": width, "height": min(height_max, max(_HEIGHT_MIN, bottom))})
    page.wait_for_timeout(200)
    return page.screenshot()


# -- objects worth showing ---------------------------------------------------------------------------------------------


def _most_retried(ask: Demo) -> str:
    events: list[dict[str, Any]] = []
    page: dict[str, Any] = {"pagination": {"cursor": ""}}
    while len(events) < 1_000 and (cursor := page["pagination"]["cursor"]) is not None:
        after = {"cursor": cursor} if cursor else {}
        page = ask("events", event_type="order.paid", status="delivered", limit=100, **after)
        events += page["events"]
    return str(_most(events, "retry_attempts")["event_id"])


def _endpoint(ask: Demo, name: str) -> str:
    (found,) = [one for one in ask("endpoints", limit=100)["endpoints"] if one["name"] == name]
    return str(found["endpoint_id"])


def _failed_bill(ask: Demo) -> str:
    """A bill with the longest history."""
    bills = [one["entity_id"] for one in ask("pipelines/bill/entities", limit=50)["entities"]]
    return str(max(bills, key=lambda bill: len(ask(f"pipelines/bill/entities/{bill}/history")["history"])))


def _most(things: list[dict[str, Any]], field: str) -> dict[str, Any]:
    return max(things, key=lambda one: one[field])


if __name__ == "__main__":
    if sys.argv[3:4] == ["--every"]:
        shoot_every(sys.argv[1], sys.argv[2], Path(sys.argv[4]))
    else:
        shoot(sys.argv[1], sys.argv[2], set(sys.argv[3:]))
