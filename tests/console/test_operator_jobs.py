"""Everyday jobs of an operator are carried out in the browser, each from the overview, in as many clicks as
docs/how-to/operator-jobs.md says, and never more than four."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import to_datetime
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.org import Role
from tests.console.chromium import Look
from tests.console.dying import die, letters
from tests.support.scene import Scene

PAGE = Path(__file__).parents[2] / "docs/how-to/operator-jobs.md"
CLICKS_MAX = 4


class Hand:
    """Uses the console with a mouse, and counts the clicks. Typing is free, but Enter counts as a click."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    async def click(self, target: Locator) -> None:
        self.clicks += 1
        await target.click()

    async def menu(self, screen: str) -> None:
        await self.click(self.page.locator("#menu a").filter(has_text=screen))

    async def link(self, name: str) -> None:
        await self.click(self.page.locator("main").get_by_role("link", name=name, exact=True).first)

    async def button(self, name: str, within: str = "main") -> None:
        await self.click(self.page.locator(within).get_by_role("button", name=name).first)

    async def row(self, words: str, button: str) -> None:
        await self.click(self.page.locator("tr", has_text=words).get_by_text(button, exact=True).first)

    async def search(self, text: str) -> None:
        self.clicks += 1
        await self.page.locator("#search").fill(text)
        await self.page.keyboard.press("Enter")

    async def fill(self, **texts: str) -> None:
        for label, text in texts.items():
            await self.page.locator("form").get_by_label(re.compile(f"^{label.replace('_', ' ')}")).last.fill(text)

    async def sees(self, words: str | re.Pattern[str]) -> None:
        await expect(self.page.locator("main")).to_contain_text(words)


Job = Callable[[Hand, Scene], Awaitable[None]]


async def why(hand: Hand, scene: Scene) -> None:
    (letter,) = [one for one in await letters(scene) if one.event_type == "order.paid"]
    await hand.search(str(letter.event_id)[-8:])
    await hand.sees("401 Unauthorized")
    await hand.sees("Attempt")


async def deliveries_of_an_endpoint(hand: Hand, scene: Scene) -> None:
    await hand.menu("Endpoints")
    await hand.link("shop")
    await hand.link("Deliveries")
    await expect(hand.page.locator("tr[data-open]").filter(has_text="delivered")).to_have_count(3)


async def find_by_payload(hand: Hand, scene: Scene) -> None:
    await hand.search("order=7")
    await hand.sees("order.paid")


async def retry_one_cause(hand: Hand, scene: Scene) -> None:
    await hand.menu("Dead letters")
    await hand.row("erp", "Retry all")
    await hand.button("Retry 2", "dialog")
    await hand.sees("Retry finished: 2/2 succeeded, 0 failed.")


async def fix_and_retry(hand: Hand, scene: Scene) -> None:
    await hand.menu("Dead letters")
    await hand.link("1")
    await hand.row("order.paid", "Edit")
    await hand.fill(Payload='{"order": 7, "price": 2}')
    await hand.button("Retry with this payload", "dialog")
    await hand.sees("Retrying…")


async def pause(hand: Hand, scene: Scene) -> None:
    await hand.menu("Endpoints")
    await hand.link("shop")
    await hand.link("Pause")
    await hand.button("Pause", "dialog")
    await hand.sees("shop is paused.")


async def drain(hand: Hand, scene: Scene) -> None:
    await scene.send_to(await _shop(scene), 2)
    await hand.menu("Endpoints")
    await hand.link("shop")
    await hand.link("Resume")
    await hand.page.locator("#dialog").get_by_label("Deliveries per second").fill("5")
    await hand.button("Resume", "dialog")
    await hand.sees("shop is active again.")
    assert (await _shop(scene)).drain_per_second == 5


async def slowest_endpoint(hand: Hand, scene: Scene) -> None:
    await hand.menu("Endpoints")
    await hand.link("Response p95")
    await expect(hand.page.locator("tr[data-open]").first).to_contain_text("slow")


async def key_for_a_colleague(hand: Hand, scene: Scene) -> None:
    await hand.menu("Settings")
    await hand.link("New key")
    await hand.page.locator("#dialog").get_by_label("Name").fill("ada")
    await hand.button("Create", "dialog")
    await expect(hand.page.locator("#secret")).to_have_text(re.compile("^dsk_"))


async def be_alerted(hand: Hand, scene: Scene) -> None:
    await hand.menu("Alerts")
    await hand.link("New channel")
    await hand.page.get_by_label("Kind").select_option("webhook")
    await hand.page.get_by_label("Name").fill("on-call")
    await hand.page.get_by_label("Target").fill(scene.receiver.url("/alerts"))
    await hand.button("Create")
    await hand.sees("on-call")


async def yesterday(hand: Hand, scene: Scene) -> None:
    now = to_datetime(scene.clock.now())
    await hand.menu("Audit log")
    await hand.page.get_by_label("Who").fill("lena")
    await hand.page.get_by_label("Since").fill(f"{now - timedelta(days=1):%Y-%m-%dT00:00}")
    await hand.page.get_by_label("Before").fill(f"{now + timedelta(days=1):%Y-%m-%dT00:00}")
    await hand.button("Filter")
    await expect(hand.page.locator("#live tbody tr")).to_have_count(1)
    await hand.sees("resolve")


JOBS: dict[str, Job] = {
    "Why was this not delivered?": why,
    "All deliveries of an endpoint": deliveries_of_an_endpoint,
    "Find an event by a field of its payload": find_by_payload,
    "Retry everything with one cause": retry_one_cause,
    "Fix a payload and retry": fix_and_retry,
    "Pause an endpoint": pause,
    "Resume it and drain the backlog": drain,
    "Which endpoint is slow?": slowest_endpoint,
    "A key for a colleague": key_for_a_colleague,
    "Be alerted": be_alerted,
    "What did a colleague do yesterday?": yesterday,
}


@pytest.mark.key_story
async def test_a_job_of_an_operator_takes_at_most_four_clicks_as_the_page_says(
    scene: Scene, look: Look, subtests: pytest.Subtests
) -> None:
    told = {
        job: int(clicks)
        for job, clicks in re.findall(r"^## (.+?)\n\n.*?(\d) clicks?\b", PAGE.read_text(), re.MULTILINE)
    }
    assert list(told) == list(JOBS)
    await _furnish(scene)
    page = await look("/console")
    for name, job in JOBS.items():
        with subtests.test(job=name):
            await page.goto("/console")
            hand = Hand(page)
            await job(hand, scene)
            assert hand.clicks == told[name] <= CLICKS_MAX


async def _furnish(scene: Scene) -> None:
    """One dead letter at crm, two at erp and one that lena resolved; a shop that works, and a slow endpoint."""
    await die(scene, 1, "/crm")
    await die(scene, 2, "/erp", "stock.changed")
    (resolved,) = await die(scene, 1, "/hr", "person.hired")
    lena, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "lena", Role.OPERATOR, "test")
    await scene.act(ActionKind.RESOLVE, resolved, actor=lena.prefix)
    scene.receiver.says(200)
    shop, slow = await scene.endpoint("/shop", name="shop"), await scene.endpoint("/slow", name="slow")
    began = time.monotonic()
    for one in await scene.send_to(shop, 3):
        await scene.until_state(one, DeliveryState.DELIVERED)
    scene.receiver.pause_seconds = 2 * (time.monotonic() - began)  # slower than the shop, however busy the machine is
    (delivered,) = await scene.send_to(slow, 1)
    await scene.until_state(delivered, DeliveryState.DELIVERED)
    scene.receiver.pause_seconds = 0.0


async def _shop(scene: Scene) -> Endpoint:
    page = await scene.doorstep.components.reader.endpoints(DEFAULT_ORG, None, None, 50)
    return next(one for one in page.items if one.name == "shop")
