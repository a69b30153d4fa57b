"""How an operator examines events: from the list to a receiver's response, and to a command copied from the page."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from doorstep.console import timeline
from doorstep.console.pages import delivery as delivery_details
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.org import Role
from doorstep.receiver import Webhook
from tests.console.conftest import Look
from tests.console.timers import stop_timers
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene

ONCE = RetryPolicy(())
HOSTILE = "</pre></script><script>window.struck=1</script><img src=x onerror=window.struck=1>'\"&lt;{{7*7}}"


async def failed(scene: Scene, payload: object = b'{"n": 1}', **fields: Any) -> Delivery:
    await scene.endpoint(policy=ONCE, **{"name": "shop"} | fields)
    return await scene.until_state(await scene.send(payload=payload), DeliveryState.DEAD)


def place(delivery: Delivery) -> str:
    return f"/console/events/{delivery.event_id}"


@pytest.mark.key_story
async def test_from_the_list_to_what_the_receiver_answered_with_the_keyboard(scene: Scene, look: Look) -> None:
    scene.receiver.answer = lambda _: Answer(422, ("x-why: strict",), b'{"error":"no such order"}')
    delivery = await failed(scene)
    page = await look("/console/events")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{page.url.partition('/console')[0]}{place(delivery)}")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("order.paid failed")
    answer = page.get_by_text('"error": "no such order"')
    await expect(answer).to_be_hidden()
    await page.locator(f"#attempt-{delivery.delivery_id}-1-more > summary").click()
    await expect(answer).to_be_visible()
    await expect(page.get_by_text("x-why: strict")).to_be_visible()


async def test_an_event_is_found_by_the_id_of_its_delivery(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    delivery = await failed(scene)
    page = await look("/console/events")
    await page.get_by_role("searchbox").fill(f" {delivery.delivery_id} ")
    await page.keyboard.press("Enter")
    await expect(page.locator(f"#delivery-{delivery.delivery_id}")).to_be_in_viewport()


PAYLOADS = (
    b'{"n": 1}',
    b'{"it\'s": "$(touch /tmp/struck) `id` \\\\ !! \xc3\xa9 %s", "@": [1.10, "\xe2\x80\xae"]}',
    b'{\n\t"lines":\r\n"and blanks" }\n',
    json.dumps("x" * 90_000).encode(),
)


async def test_copy_as_curl_yields_a_command_that_sends_the_same_bytes(
    scene: Scene, look: Look, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    scene.receiver.says(503)
    await scene.endpoint(name="shop", policy=ONCE, headers={"authorization": "Bearer s3cret"})
    page = await look(alone=True)
    for payload in PAYLOADS:
        with subtests.test(payload=payload[:40]):
            delivery = await scene.until_state(await scene.send(payload=payload), DeliveryState.DEAD)
            await page.goto(f"/console/deliveries/{delivery.delivery_id}/attempts/1")
            masked = page.get_by_text("Values of the endpoint's own headers are not logged: replace each ***.")
            await expect(masked).to_be_visible()
            command = await copied_command(page)
            assert "s3cret" not in command
            await run(command, tmp_path)
            first, second = (one for one in scene.receiver.requests if one.event_id == str(delivery.event_id))
            assert second.body == first.body == payload
            assert second.path == first.path
            assert second.headers == first.headers | {"authorization": "***"}, "what is secret is masked"


async def test_a_body_too_long_for_a_command_is_downloaded_as_it_was_signed_under_the_name_in_the_command(
    scene: Scene, look: Look, tmp_path: Path
) -> None:
    scene.receiver.says(503)
    _, secret = await scene.doorstep.create_endpoint(name="shop", url=scene.receiver.url(), policy=ONCE, envelope=True)
    receipt = await scene.send(payload=json.dumps("x" * 100 * 1024).encode())
    delivery = await scene.until_state(receipt, DeliveryState.DEAD)
    page = await look(f"/console/deliveries/{delivery.delivery_id}/attempts/1", alone=True)
    await expect(page.get_by_text("own headers are not logged")).to_have_count(0)
    command = await copied_command(page)
    link = page.get_by_role("link", name=".json")
    async with page.expect_download() as download:
        await link.click()
    name = (await download.value).suggested_filename
    assert f"@{name}" in command
    await (await download.value).save_as(tmp_path / name)
    await run(command, tmp_path)
    first, second = scene.receiver.requests
    assert second.body == first.body
    assert Webhook(secret).verify(second.headers, second.body).json()["data"] == "x" * 100 * 1024


async def copied_command(page: Page) -> str:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await stop_timers(page)
    await page.get_by_role("button", name="Copy as curl").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    return str(await page.evaluate("navigator.clipboard.readText()"))


async def run(command: str, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", command, cwd=folder, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.startswith(b"HTTP/1.1 503"), out


async def test_what_others_wrote_is_shown_as_text_and_never_run(scene: Scene, look: Look) -> None:
    scene.receiver.answer = lambda _: Answer(400, (f"x-header: {HOSTILE}",), HOSTILE.encode())
    await scene.endpoint(name=HOSTILE, policy=ONCE)
    receipt = await scene.send(payload={HOSTILE: HOSTILE}, metadata={HOSTILE: HOSTILE}, ordering_key=HOSTILE)
    delivery = await scene.until_state(receipt, DeliveryState.DEAD)
    for path in (
        place(delivery),
        f"{place(delivery)}?payload=raw",
        f"/console/deliveries/{delivery.delivery_id}/attempts/1",
    ):
        page = await look(path)
        for details in await page.locator("#live details").all():
            await details.locator("> summary").click()
        await expect(page.get_by_text(f"x-header: {HOSTILE}").first).to_be_visible()
        await expect(page.locator("img")).to_have_count(0)
        assert await page.evaluate("window.struck") is None
    page = await look(f"{place(delivery)}?payload={HOSTILE}")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("order.paid")
    answer = await page.request.get(f"{place(delivery)}/payload")
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_the_page_follows_a_retry_and_what_was_opened_stays_open(scene: Scene, look: Look) -> None:
    scene.receiver.answer = lambda _: Answer(503, (), b"asleep")
    await scene.endpoint(name="shop", policy=RetryPolicy((3_600.0,)))
    delivery = await scene.until_tried(await scene.send())
    page = await look(place(delivery))
    await page.locator(f"#attempt-{delivery.delivery_id}-1-more > summary").click()
    await page.locator(f"#history-{delivery.delivery_id} > summary").click()
    scene.receiver.says(200)
    scene.leap(4_000)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("delivered")
    await expect(page.get_by_text("Succeeded on retry attempt 1")).to_be_visible()
    await expect(page.locator(f"#attempt-{delivery.delivery_id}-2")).to_be_visible()
    await expect(page.get_by_text("asleep")).to_be_visible()
    await expect(page.locator(f"#history-{delivery.delivery_id}")).to_contain_text("delivered")
    await expect(page.get_by_role("button", name="Retry now")).to_have_count(0)


async def test_the_timeline_shows_each_attempt_and_says_what_it_was(
    scene: Scene, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.receiver.says(503, 503, 200)
    await scene.endpoint(name="shop", policy=RetryPolicy((60.0, 300.0), jitter=0.0))
    delivery = await scene.until_tried(await scene.send())
    for times, seconds in ((2, 61), (3, 301)):
        await scene.until_state(delivery, DeliveryState.PENDING)
        scene.leap(seconds)
        await scene.until_tried(delivery, times)
    page = await look(place(delivery))
    picture = page.locator("svg.timeline")
    await expect(picture.locator("rect.failed")).to_have_count(2)
    await expect(picture.locator("rect.delivered")).to_have_count(1)
    boxes = [await one.bounding_box() for one in await picture.locator("rect.planned").all()]
    first, second = (box["width"] for box in boxes if box)
    assert second / first == pytest.approx(5, rel=0.05), "a pause of five minutes is five times as wide as one of one"
    await expect(picture.locator("rect.failed title").first).to_contain_text("Attempt 1: SERVICE_UNAVAILABLE")
    keys = set(await page.locator(".keys-line").first.locator(".key").all_inner_texts())
    assert keys - {"due, not claimed yet"} == {"scheduled", "delivered", "failed"}, "those that are there"
    monkeypatch.setattr(delivery_details, "ATTEMPTS_SHOWN", 2)
    await page.reload()
    await expect(page.get_by_text("1 older attempt not shown")).to_be_visible()
    await expect(picture.get_by_text("attempt 2", exact=True)).to_be_visible()
    await expect(picture.locator("rect.failed, rect.delivered")).to_have_count(2)
    await expect(picture.locator("rect.planned")).to_have_count(1)


KINDS = tuple(timeline.KEYS)
PAINTED = """kinds => kinds.map(kind => {
  const key = document.createElement("span"), rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  key.className = `key ${kind}`; rect.setAttribute("class", kind);
  document.querySelector("main").append(key); document.querySelector("svg.timeline").append(rect);
  const swatch = getComputedStyle(key, "::before"), bar = getComputedStyle(rect);
  return {
    key: [swatch.borderTopColor, swatch.backgroundColor],
    bar: [bar.stroke === "none" ? bar.fill : bar.stroke, bar.fill],
    paper: getComputedStyle(document.querySelector(".panel")).backgroundColor,
  };
})"""


async def test_every_colour_of_a_life_can_be_seen_and_told_from_the_others(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    page = await look(place(await failed(scene)))
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)
        painted = await page.evaluate(PAINTED, KINDS)
        for kind, one in zip(KINDS, painted, strict=True):
            assert one["key"] == one["bar"], f"the key of {kind} has its colours in the {theme} theme"
            assert contrast(one["bar"][0], one["paper"]) >= 3, f"{kind} is seen on its ground (WCAG 1.4.11), {theme}"
        assert len({tuple(one["bar"]) for one in painted}) == len(KINDS)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours `rgb(…)`, as WCAG defines it."""
    darker, lighter = sorted(_luminance(colour) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.key_story
async def test_an_act_is_asked_for_in_a_dialog_and_is_in_the_trail_with_its_reason(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    delivery = await failed(scene)
    page = await look(place(delivery))
    await page.get_by_role("link", name="Mark as resolved").click()
    question = page.get_by_role("dialog")
    await question.get_by_label("Reason").fill("settled by phone")
    assert (await scene.delivery(delivery)).state is DeliveryState.DEAD
    await question.get_by_role("button", name="Mark as resolved").click()
    await expect(page.get_by_text("Marked as resolved.")).to_be_visible()
    await expect(page.get_by_role("region", name="Audit log")).to_contain_text("settled by phone")
    assert (await scene.delivery(delivery)).state is DeliveryState.RESOLVED


async def test_r_retries_a_delivery(scene: Scene, look: Look) -> None:
    scene.receiver.says(400, 200)
    delivery = await failed(scene)
    page = await look(place(delivery))
    await page.keyboard.press("r")
    await expect(page.get_by_text("Retrying…")).to_be_visible()
    scene.leap(10)
    await scene.until_state(delivery, DeliveryState.DELIVERED)


async def test_r_asks_about_all_deliveries_where_there_are_several(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    for name in ("shop", "crm"):
        await scene.endpoint(f"/{name}", name=name, policy=ONCE)
    receipt = await scene.send()
    for delivery in await scene.deliveries(receipt):
        await scene.until_state(delivery, DeliveryState.DEAD)
    scene.receiver.says(200)
    page = await look(f"/console/events/{receipt.event_id}")
    await page.keyboard.press("r")
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("Retry 2 deliveries of order.paid?")
    await question.get_by_role("button", name="Retry").click()
    await expect(page.get_by_text("2 deliveries will be retried.")).to_be_visible()


async def test_how_it_went_is_seen_before_what_was_sent(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    page = await look(place(await failed(scene, json.dumps({f"field {n}": n for n in range(40)}).encode())))
    picture, payload = [await page.locator(one).bounding_box() for one in ("svg.timeline", "#payload")]
    assert picture and picture["y"] < 360, "without scrolling, and without a hole above"
    assert payload and payload["y"] > picture["y"]


@pytest.mark.key_story
async def test_an_event_is_sent_from_a_dialog_and_mistakes_keep_what_was_typed(scene: Scene, look: Look) -> None:
    await scene.endpoint(name="shop")
    page = await look("/console/events")
    await page.get_by_role("link", name="Send an event").click()
    await page.get_by_role("dialog").get_by_label("Event type").fill("order.paid")
    await page.get_by_role("dialog").get_by_label("Payload, as JSON").fill('{"order": 7')
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("must be JSON")
    await expect(page.get_by_label("Payload, as JSON")).to_have_value('{"order": 7')
    await page.get_by_label("Payload, as JSON").fill('{"order": 7}')
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("The event was accepted.")).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("delivered")
    assert scene.receiver.requests[0].body == b'{"order": 7}'


async def test_a_viewer_is_offered_no_act(scene: Scene, look: Look) -> None:
    scene.receiver.says(400)
    delivery = await failed(scene)
    page = await look(place(delivery), role=Role.VIEWER)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("failed")
    assert set(await _labels(page)) <= {"Copy", "Copy as curl"}


async def _labels(page: Page) -> list[str]:
    offered = page.locator("main button, main a.button:not([download])")
    return [text.strip() for text in await offered.all_text_contents()]
