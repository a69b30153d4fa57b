"""How an operator handles a batch that the carrier refused: from the click to the carrier and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.batch import BatchStatus
from doorstep.model.org import Role
from tests.console.carrying import BUSY, Carrier, submitted
from tests.console.conftest import Look
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene

BATCHES = "/console/batches"


@pytest_asyncio.fixture(loop_scope="session")
async def carrier(database_url: str, receiver: Receiver) -> AsyncIterator[Carrier]:
    async with submitted(database_url, receiver) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def scene(carrier: Carrier) -> Scene:
    return carrier.scene


@pytest.mark.key_story
async def test_a_failed_batch_is_found_resubmitted_and_confirmed(carrier: Carrier, look: Look) -> None:
    batch = await carrier.failed()
    page = await look(f"{BATCHES}?status=FAILED", role=Role.OPERATOR)
    await page.locator(f"#row-{batch.batch_id}").get_by_role("link", name="sms.batch").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("sms.batch FAILED")
    await expect(page.get_by_text("R-9 <b>rejected</b>")).to_be_visible()
    await page.get_by_role("link", name="Resubmit").click()
    dialog = page.get_by_role("dialog", name="Resubmit the batch sms.batch?")
    await dialog.get_by_label("Reason").fill("the carrier is back")
    await dialog.get_by_role("button", name="Resubmit").click()
    await expect(page.locator("#told")).to_have_text("The batch will be submitted again.")
    await expect(page.get_by_role("heading", level=1)).to_have_text("sms.batch CONFIRMED")
    await expect(page.get_by_text('{"reference":"C-2"}')).to_be_visible()
    await expect(page.get_by_role("link", name="Resubmit")).to_have_count(0)
    assert (await carrier.read(batch.batch_id)).status is BatchStatus.CONFIRMED
    (line,) = (
        await carrier.scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "batch.resubmit", None, 10)
    ).items
    assert line.reason == "the carrier is back"


async def test_a_retry_shows_up_in_the_open_list_by_itself(carrier: Carrier, look: Look) -> None:
    batch = await carrier.until(await carrier.send(BUSY), BatchStatus.PENDING)
    page = await look(BATCHES)
    row = page.locator(f"#row-{batch.batch_id}")
    await expect(row).to_contain_text("PENDING")
    await expect(row).to_contain_text("SERVICE_UNAVAILABLE")
    carrier.scene.leap(400)
    await expect(row).to_contain_text("CONFIRMED")
    await expect(row).to_contain_text("1 / 3")


async def test_the_keyboard_leads_to_the_resubmission_and_out_of_it(carrier: Carrier, look: Look) -> None:
    await carrier.failed()
    page = await look(BATCHES)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("sms.batch FAILED")
    await page.keyboard.press("r")
    await expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(carrier.given) == 1


async def test_a_viewer_sees_no_action(carrier: Carrier, look: Look) -> None:
    batch = await carrier.failed()
    page = await look(f"{BATCHES}/{batch.batch_id}", role=Role.VIEWER)
    await expect(page.get_by_role("heading", level=1)).to_have_text("sms.batch FAILED")
    assert await page.locator("main").get_by_role("button").all_text_contents() == ["Copy"]
    assert await page.get_by_role("link", name="Resubmit").count() == 0
