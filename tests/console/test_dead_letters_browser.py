"""The dead letters as an operator uses them: R7.4, from the click to the database and back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import Permanent
from doorstep.model.bulk import BulkFilter, BulkKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.org import Role
from tests.console.conftest import Look
from tests.console.dying import LETTERS, die, letters, state_of, three_causes
from tests.support.scene import Scene, until

ROWS = f"{LETTERS}/letters"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} ${7 * 7} <%= 7 * 7 %>",
    "' onmouseover='alert(1)",
    "</textarea><script>alert(1)</script>",
    "\u202e desrever \u0007 \u2028 end",
)


def rows(page: Page) -> Locator:
    return page.locator("#live tbody tr")


def boxes(page: Page) -> Locator:
    return page.locator("input[data-row]")


@pytest.mark.key_story
async def test_142_letters_are_three_groups_and_one_is_retried_with_a_canary_in_sight(scene: Scene, look: Look) -> None:
    await three_causes(scene)
    page = await look(LETTERS)
    await expect(rows(page)).to_have_count(3)
    group = rows(page).filter(has_text="NOT_FOUND")
    await expect(group).to_contain_text("40")
    scene.receiver.says(200)
    await group.get_by_role("link", name="Retry all").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("Retry 40 deliveries?")
    await expect(question.get_by_label("Canary: one of each cause first")).to_be_checked()
    await question.get_by_label("Maximum per second").fill("1000")
    await question.get_by_label("Reason").fill("the address is right again")
    await question.get_by_role("button", name="Retry 40").click()
    await page.wait_for_url(re.compile("/console/bulk/"))
    await page.goto(LETTERS)
    strip = page.get_by_role("list", name="Bulk operations")
    await expect(strip).to_contain_text(re.compile(r"\d+/40 succeeded, 0 failed"))
    await _carried_out(scene)
    await expect(strip).to_contain_text("40/40 succeeded, 0 failed")
    await expect(rows(page)).to_have_count(2)
    assert await scene.count(DeliveryState.DEAD) == 102
    (bulk,) = (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items
    assert (bulk.canary, bulk.rate_per_second, bulk.reason) == (True, 1_000, "the address is right again")


async def _carried_out(scene: Scene) -> None:
    """Wait until the bulk operation has finished. The clock skips the delays before the canary and before the other
    retries."""

    async def finished() -> bool:
        (bulk,) = (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items
        if bulk.finished_at is None:
            scene.leap(0.5)
        return bulk.finished_at is not None

    await until(finished, "the end of the bulk operation")


async def test_a_range_is_ticked_with_shift_and_deleted_with_a_reason(scene: Scene, look: Look) -> None:
    made = await die(scene, 5)
    page = await look(ROWS)
    await boxes(page).nth(1).click()
    await boxes(page).nth(3).click(modifiers=["Shift"])
    await expect(page.locator("[data-selected]")).to_have_text("3 selected")
    await expect(page.locator("#live-status")).to_have_text("Paused while rows are selected")
    await page.locator("[data-selection]").get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("Delete 3 deliveries?")
    await question.get_by_role("button", name="Delete 3").click()
    await expect(question).to_be_visible()  # a reason is required
    await question.get_by_label("Reason").fill("they were tests")
    await question.get_by_role("button", name="Delete 3").click()
    await page.wait_for_url(re.compile("/console/bulk/"))

    async def deleted() -> bool:
        return [one.delivery_id for one in await letters(scene)] == [made[0].delivery_id, made[4].delivery_id]

    await until(deleted, "three of five deleted")
    (bulk,) = (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items
    assert (bulk.kind, bulk.reason) == (BulkKind.DELETE, "they were tests")


async def test_all_that_match_are_resolved_from_one_tick(scene: Scene, look: Look) -> None:
    await die(scene, 3)
    (other,) = await die(scene, 1, "/shop", "user.created")
    page = await look(f"{ROWS}?event_type=order.*")
    await boxes(page).first.click()
    await page.get_by_label("all 3 that match").check()
    await page.locator("[data-selection]").get_by_role("button", name="Resolve").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resolve 3").click()
    await page.wait_for_url(re.compile("/console/bulk/"))

    async def resolved() -> bool:
        return [one.delivery_id for one in await letters(scene)] == [other.delivery_id]

    await until(resolved, "three of four resolved")


@pytest.mark.key_story
async def test_a_payload_is_edited_compared_mended_and_delivered(scene: Scene, look: Look) -> None:
    (letter,) = await die(scene, path="/erp")
    page = await look(LETTERS)
    await rows(page).get_by_role("link", name="1", exact=True).click()
    await rows(page).get_by_role("link", name="Edit").click()
    question = page.get_by_role("dialog")
    payload = question.get_by_label("Payload")
    await expect(payload).to_have_value('{\n  "order": 7,\n  "price": 1.10\n}')
    await payload.fill('{"order": 7, "price": }')
    await question.get_by_label("Reason").fill("the price was missing")
    await question.get_by_role("button", name="Retry with this payload").click()
    await expect(page.get_by_role("alert")).to_contain_text("must be JSON")
    await expect(page.get_by_label("Payload")).to_have_value('{"order": 7, "price": }')
    await expect(page.get_by_label("Reason")).to_have_value("the price was missing")
    assert await state_of(scene, letter) is DeliveryState.DEAD

    await page.get_by_label("Payload").fill('{\n  "order": 7,\n  "price": 2.20\n}')
    await page.get_by_role("button", name="Show difference").click()
    await expect(page.locator(".difference .removed")).to_have_text('-  "price": 1.10')
    await expect(page.locator(".difference .added")).to_have_text('+  "price": 2.20')
    scene.receiver.says(200)
    await page.get_by_role("button", name="Retry with this payload").click()
    await expect(page.get_by_text("Retrying…")).to_be_visible()
    scene.leap(6)
    await scene.until_state(letter, DeliveryState.DELIVERED)
    assert scene.receiver.requests[-1].body == b'{"order":7,"price":2.20}'


async def test_one_letter_is_retried_with_the_keyboard_alone(scene: Scene, look: Look) -> None:
    _, letter = await die(scene, 2)
    page = await look(ROWS)
    for key in ("j", "j"):
        await page.keyboard.press(key)
    await expect(page.locator(f"#row-{letter.delivery_id}")).to_be_focused()
    scene.receiver.says(200)
    await page.keyboard.press("r")
    await expect(page.get_by_text("Retrying…")).to_be_visible()
    await expect(rows(page)).to_have_count(1)
    scene.leap(6)
    await scene.until_state(letter, DeliveryState.DELIVERED)


async def test_the_list_refreshes_itself_and_keeps_what_is_ticked(scene: Scene, look: Look) -> None:
    (first,) = await die(scene)
    page = await look(ROWS)
    await page.get_by_label("Event type", exact=True).fill("typed, not sent")
    await die(scene)
    await expect(rows(page)).to_have_count(2)  # automatically
    await page.locator(f"#tick-{first.delivery_id}").check()
    (newest,) = await die(scene)
    await page.locator(f"#tick-{first.delivery_id}").press(".")  # even though rows are selected
    await expect(page.locator(f"#row-{newest.delivery_id}")).to_be_visible()
    await expect(page.locator(f"#tick-{first.delivery_id}")).to_be_checked()
    await expect(page.locator(f"#tick-{first.delivery_id}")).to_be_focused()
    await expect(page.locator(f"#tick-{newest.delivery_id}")).not_to_be_checked()
    await expect(page.get_by_label("Event type", exact=True)).to_have_value("typed, not sent")
    await expect(page.locator("[data-selected]")).to_have_text("1 selected")


async def test_a_viewer_sees_the_letters_and_no_action(scene: Scene, look: Look) -> None:
    await die(scene, 2)
    page = await look(LETTERS, role=Role.VIEWER)
    await expect(rows(page)).to_have_count(1)
    for path in (LETTERS, ROWS):
        await page.goto(path)
        main = page.locator("main")
        await expect(main.get_by_role("button", name=re.compile("Retry|Resolve|Delete|Edit"))).to_have_count(0)
        await expect(main.get_by_role("link", name=re.compile("Retry|Resolve|Delete|Edit"))).to_have_count(0)
        await expect(main.get_by_role("checkbox")).to_have_count(0)


async def test_without_letters_the_page_says_that_all_is_well(look: Look) -> None:
    page = await look(LETTERS)
    await expect(page.get_by_text("No failed events. All integrations healthy.")).to_be_visible()


async def test_an_export_is_a_file_with_the_letters_of_the_filter(scene: Scene, look: Look) -> None:
    await die(scene, 2)
    await die(scene, 1, "/shop", "user.created")
    page = await look(f"{ROWS}?event_type=order.*")
    await page.get_by_text("Export").click()
    async with page.expect_download() as begun:
        await page.get_by_role("link", name="JSON lines", exact=True).click()
    file = await begun.value
    assert re.fullmatch(r"dead-letters-[0-9T-]+\.jsonl", file.suggested_filename)
    assert len((await file.path()).read_bytes().splitlines()) == 2


async def test_hostile_words_are_only_words(scene: Scene, look: Look) -> None:
    """Hostile text is in the failure reason and in a payload; `look` detects scripts that run and their effects."""

    def refusing(doorstep: Doorstep) -> None:
        @doorstep.handler("*", name="hostile")
        async def refuse(event: Any) -> None:
            raise Permanent("REFUSED", HOSTILE[event.json()["n"]])

    other = await scene.open(refusing)
    for number in range(len(HOSTILE)):  # never the same text in both: words of the payload are redacted from a reason
        await other.send("order.paid", {"n": number, "words": HOSTILE[number - 1]})

    async def dead() -> bool:
        return await scene.count(DeliveryState.DEAD) == len(HOSTILE)

    await until(dead, "dead letters with hostile words")
    page = await look(ROWS)
    await expect(rows(page)).to_have_count(len(HOSTILE))
    for words in HOSTILE[:5]:
        await expect(page.locator("#live tbody")).to_contain_text(words)
    await page.goto(LETTERS)
    await expect(page.locator("#live tbody")).to_contain_text(HOSTILE[0])
    for letter in await letters(scene):
        await page.goto(f"{LETTERS}/{letter.delivery_id}/edit")
        await expect(page.get_by_label("Payload")).to_have_value(re.compile('"words"'))
        await expect(page.locator("#question script, #question img")).to_have_count(0)
