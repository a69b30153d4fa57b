"""A protocol as its users see it: it fails, is retried, waits for a decision, and is completed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from doorstep import Entity, Transient
from doorstep.model.org import Role
from tests.acceptance.protocols import Protocols, failing
from tests.console.carrying import GATE, carried, dead, waiting
from tests.console.conftest import Look
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene

PIPELINES = "/console/pipelines"
P1 = f"{PIPELINES}/protocol/p1"
HOSTILE = "</pre></script><script>window.struck=1</script><img src=x onerror=window.struck=1>{{7*7}}"


@pytest_asyncio.fixture(loop_scope="session")
async def protocols(database_url: str, receiver: Receiver) -> AsyncIterator[Protocols]:
    async with carried(database_url, receiver) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def scene(protocols: Protocols) -> Scene:
    return protocols.scene


async def status(page: Page, entity_id: str, words: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"{entity_id} {words}")


def found(entity: Entity) -> dict[str, object]:
    return {**entity.data, "sources": 4}


@pytest.mark.key_story
async def test_a_protocol_fails_is_retried_approved_and_complete(protocols: Protocols, look: Look) -> None:
    protocols.does["grounding"] = failing(
        Transient("SOURCE_MISSING", "1 of the sources that it cites cannot be found.")
    )
    await protocols.start("p1", path="a.txt")
    await protocols.until("dead_letter")

    page = await look(PIPELINES, role=Role.OPERATOR)
    await page.get_by_role("link", name="dead letter 1").click()
    await expect(page).to_have_url(f"{page.url.partition('/console')[0]}{PIPELINES}/protocol?status=dead_letter")
    row = page.locator("#row-p1")
    await expect(row).to_contain_text(
        "SOURCE_MISSING 1 of the sources that it cites cannot be found.", use_inner_text=True
    )
    await row.get_by_role("link", name="p1").click()
    await status(page, "p1", "dead letter")

    protocols.does["grounding"] = found
    await page.get_by_role("button", name="Retry").click()
    await expect(page.locator("#told")).to_have_text("protocol p1 starts again from its first stage.")
    await status(page, "p1", "pending review")
    await expect(page.locator("#data-text")).to_contain_text('"sources": 4')

    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator("#told")).to_have_text("protocol p1 was approved.")
    await status(page, "p1", "complete")
    assert (await protocols.pipeline.entity("p1")).status == "complete"
    way = [
        "uploaded",
        "extracting",
        "grounding",
        *["grounding_failed", "grounding"] * 2,
        "grounding_failed",
        "dead_letter",
    ]
    again = ["uploaded", "extracting", "grounding", GATE, "complete"]
    assert await protocols.path() == way + again
    shown = await page.locator("table.life tbody tr td:first-child").all_text_contents()
    assert shown == [one.replace("_", " ") for one in way + again]

    await page.goto(PIPELINES)
    await expect(page.get_by_role("link", name="complete 1 end")).to_be_visible()


@pytest.mark.key_story
async def test_a_rejection_asks_for_a_reason_and_shows_it(protocols: Protocols, look: Look) -> None:
    await waiting(protocols)
    page = await look(P1, role=Role.OPERATOR)
    await page.get_by_role("link", name="Reject").click()
    dialog = page.get_by_role("dialog", name="Reject protocol p1?")
    await dialog.get_by_role("button", name="Reject").click()
    await expect(dialog).to_be_visible()  # the browser asks for the missing reason
    await dialog.get_by_label("Reason").fill("wrong bearing")
    await dialog.get_by_role("button", name="Reject").click()
    await expect(page.locator("#told")).to_have_text("protocol p1 was rejected.")
    await status(page, "p1", "dead letter")
    await expect(page.locator(".notice.bad")).to_contain_text("wrong bearing")
    assert (await protocols.pipeline.entity("p1")).status == "dead_letter"


async def test_a_deletion_can_be_thought_over_and_then_leads_to_the_list(protocols: Protocols, look: Look) -> None:
    await dead(protocols)
    page = await look(P1)
    await page.get_by_role("link", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete protocol p1?")
    await dialog.get_by_role("link", name="Cancel").click()
    await expect(dialog).to_be_hidden()
    await page.get_by_role("link", name="Delete").click()
    await dialog.get_by_label("Reason").fill("sent by mistake")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No protocol yet.")).to_be_visible()
    assert (await protocols.pipeline.list()).items == ()


async def test_the_open_overview_counts_on_by_itself(protocols: Protocols, look: Look) -> None:
    page = await look(PIPELINES)
    await expect(page.get_by_role("link", name="pending review 0 waits for approval")).to_be_visible()
    await waiting(protocols)
    await expect(page.get_by_role("link", name="pending review 1 waits for approval")).to_be_visible()


async def test_the_keyboard_retries_the_row_that_it_is_at(protocols: Protocols, look: Look) -> None:
    await dead(protocols, "p1")
    page = await look(f"{PIPELINES}/protocol")
    await page.keyboard.press("j")
    await expect(page.locator("#row-p1")).to_be_focused()
    await page.keyboard.press("r")
    await expect(page.locator("#row-p1")).to_contain_text("pending review")


async def test_what_a_stage_says_is_text(protocols: Protocols, look: Look) -> None:
    protocols.does["extracting"] = failing(Transient("WRONG", HOSTILE))
    await protocols.start("p1", note="</pre><svg onload=window.struck=2>")
    await protocols.until("dead_letter")
    page = await look(P1)
    await expect(page.locator(".notice.bad")).to_contain_text(HOSTILE)
    await expect(page.locator("#data-text")).to_contain_text("</pre><svg onload=window.struck=2>")
    await page.goto(f"{PIPELINES}/protocol")
    await expect(page.locator("#row-p1")).to_contain_text(HOSTILE)
    assert await page.evaluate("window.struck") is None


async def test_a_viewer_sees_no_action(protocols: Protocols, look: Look) -> None:
    await waiting(protocols)
    page = await look(P1, role=Role.VIEWER)
    await status(page, "p1", "pending review")
    assert await page.locator("main").get_by_role("button").all_text_contents() == ["Copy id", "Copy"]
    assert await page.locator("main a[data-dialog]").count() == 0
