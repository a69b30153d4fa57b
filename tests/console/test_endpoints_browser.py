"""Endpoints as an operator uses them in a browser: created, tested, paused, resumed, given a new secret, deleted."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.org import Role
from tests.console.conftest import Look
from tests.console.endpoint_pages import ENDPOINTS, page_of, stored
from tests.console.timers import stop_timers
from tests.support.loop_receiver import Request
from tests.support.scene import Scene, until


def verified(request: Request, secret: str) -> bool:
    """Whether an independent webhook library accepts the request's signature."""
    try:
        Webhook(secret).verify(request.body, request.headers)
    except WebhookVerificationError:
        return False
    return True


async def ask(page: Page, label: str) -> None:
    """Open a confirmation dialog over the page."""
    await page.locator("main .actions").get_by_role("link", name=label, exact=True).click()
    await expect(page.get_by_role("dialog")).to_be_visible()


async def answer(page: Page, label: str) -> None:
    await page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


@pytest.mark.key_story
async def test_from_a_new_endpoint_to_its_first_delivery_and_a_pause_that_ends_at_a_rate(
    scene: Scene, look: Look
) -> None:
    page = await look(ENDPOINTS)
    await page.get_by_role("link", name="New endpoint").click()
    await page.get_by_label("Name", exact=True).fill("my shop")
    await page.get_by_label("URL", exact=True).last.fill(scene.receiver.url("/shop"))
    await page.get_by_role("button", name="Create").click()

    await expect(page.get_by_role("heading", name="Created my shop")).to_be_visible()
    secret = await page.locator("#secret").inner_text()
    assert secret not in page.url
    await page.get_by_role("link", name="Go to the endpoint").click()
    await expect(page.get_by_role("heading", name="my shop")).to_be_visible()
    assert secret not in await page.content()
    place = page.url
    (endpoint,) = await scene.endpoints()

    await ask(page, "Send a test")
    await page.get_by_label("Payload").fill('{"hello": "there"}')
    await answer(page, "Send")
    await page.wait_for_url("**/console/events/*")
    await scene.until_received(1)
    (request,) = scene.receiver.requests
    assert request.body == b'{"hello": "there"}'
    assert verified(request, secret)
    assert not verified(request, "whsec_" + "A" * 32), "the check can fail"

    await page.goto(place)
    await ask(page, "Pause")
    await page.get_by_label("Reason").fill("they migrate")
    await answer(page, "Pause")
    await expect(page.get_by_text("they migrate")).to_be_visible()
    await scene.send_to(endpoint, 3)
    await expect(page.locator(".figures")).to_contain_text("Waiting now3")
    await scene.send_to(await scene.endpoint("/another"))
    await scene.until_received(2)  # the dispatcher has run, and left the paused endpoint's deliveries alone
    assert [one.path for one in scene.receiver.requests] == ["/shop", "/another"]

    await ask(page, "Resume")
    await expect(page.get_by_role("dialog")).to_contain_text("3 deliveries wait")
    await page.get_by_label("Deliveries per second").fill("20")
    await expect(page.get_by_label("at", exact=True)).to_be_checked()
    await answer(page, "Resume")
    await expect(page.get_by_text("my shop is active again.")).to_be_visible()
    await scene.until_received(5)
    endpoint = await stored(scene, endpoint)
    assert (endpoint.state, endpoint.drain_per_second) == (EndpointState.ACTIVE, 20)

    async def delivered() -> bool:
        return await scene.count(DeliveryState.DELIVERED) == 5

    await until(delivered, "all that was sent")


async def test_during_a_rotation_old_and_new_secret_both_verify(scene: Scene, look: Look) -> None:
    created, old = await scene.doorstep.create_endpoint(name="shop", url=scene.receiver.url())
    endpoint = await scene.doorstep.components.reader.endpoint(DEFAULT_ORG, created.endpoint_id)
    page = await look(page_of(endpoint))
    await ask(page, "New secret")
    await page.get_by_label("The old secret expires").select_option("after 1 hour")
    await answer(page, "Create a new secret")
    await expect(page.get_by_role("heading", name="New secret for shop")).to_be_visible()
    new = await page.locator("#secret").inner_text()
    await scene.send_to(endpoint)
    await scene.until_received(1)
    assert old != new
    assert verified(scene.receiver.requests[0], old)
    assert verified(scene.receiver.requests[0], new)
    await page.goto(page_of(endpoint))
    await ask(page, "New secret")
    await page.get_by_label("The old secret expires").select_option("immediately")
    await answer(page, "Create a new secret")
    newest = await page.locator("#secret").inner_text()
    await scene.send_to(endpoint)
    await scene.until_received(2)
    assert [verified(scene.receiver.requests[1], one) for one in (old, new, newest)] == [False, False, True]


async def test_the_secret_can_be_copied(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint()
    page = await look(page_of(endpoint), alone=True)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await ask(page, "New secret")
    await answer(page, "Create a new secret")
    await stop_timers(page)
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == await page.locator("#secret").inner_text()


async def test_an_edit_keeps_everything_that_was_entered_when_one_field_is_wrong(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint(name="shop", headers={"X-Key": "s3cret"})
    page = await look(f"{page_of(endpoint)}/edit")
    await page.get_by_label("Concurrent attempts").fill("3")
    await page.get_by_label("Headers").fill("X-Key: ***\nwebhook-id: mine")
    await page.get_by_label("Policy", exact=True).select_option("own")
    await page.get_by_label("Delays").fill("5s, 1m")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("is set by Doorstep")
    await expect(page.get_by_label("Headers")).to_be_visible()
    await expect(page.get_by_label("Concurrent attempts")).to_have_value("3")
    await expect(page.get_by_label("Delays")).to_have_value("5s, 1m")
    await page.get_by_label("Headers").fill("X-Key: ***")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Changed: concurrency max, policy.")).to_be_visible()
    changed = await stored(scene, endpoint)
    assert changed.policy is not None
    assert (changed.concurrency_max, changed.policy.delays) == (3, (5, 60))


async def test_an_endpoint_that_no_field_was_touched_of_is_saved_unchanged(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint(
        name=" shop\nof two lines ",
        event_types=["a.*", "b"],
        policy="patient",
        policy_by_event_type={"a.b": [1.5, 90]},
        headers={"X-Key": "s3cret"},
        code_map={"E=1": "TIMEOUT"},
        envelope=True,
    )
    page = await look(f"{page_of(endpoint)}/edit")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Nothing was changed.")).to_be_visible()
    assert await stored(scene, endpoint) == endpoint


async def test_a_question_about_a_range_is_counted_before_it_is_asked(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint("/again")
    for delivery in await scene.send_to(endpoint, 2):
        await scene.until_state(delivery, DeliveryState.DELIVERED)
    scene.leap(120)
    page = await look(page_of(endpoint))
    await ask(page, "Replay")
    await page.get_by_label("Accepted from").fill("2020-01-01T00:00")
    await page.get_by_role("dialog").get_by_role("button", name="Count").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 events")
    await page.get_by_label("Reason").fill("they lost them")
    await answer(page, "Replay 2")
    await page.wait_for_url("**/console/bulk/*")
    await scene.until_received(4)


async def test_deleting_asks_with_the_number_and_cancel_does_nothing(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint(name="shop")
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "test")
    await scene.send_to(endpoint, 2)
    page = await look(page_of(endpoint))
    await ask(page, "Delete")
    await expect(page.get_by_role("dialog")).to_contain_text("2 waiting deliveries become dead letters")
    await page.get_by_role("dialog").get_by_role("link", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    assert (await stored(scene, endpoint)).state is EndpointState.PAUSED
    await ask(page, "Delete")
    await page.get_by_label("Reason").fill("they left us")
    await answer(page, "Delete and give up 2")
    await expect(page.get_by_text("shop was deleted.")).to_be_visible()
    assert await scene.count(DeliveryState.DEAD) == 2


async def test_the_page_is_live_and_its_charts_stay(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint(name="shop")
    page = await look(page_of(endpoint))
    charts = page.locator("figure[data-chart] canvas")
    await expect(charts).to_have_count(4)
    await page.locator("figure[data-chart]").first.evaluate("figure => { figure.querySelector('canvas').mark = 1; }")
    await scene.send_to(endpoint, 2)
    await expect(page.locator(".figures")).to_contain_text("Delivered2")
    await expect(charts).to_have_count(4)
    assert await charts.first.evaluate("canvas => canvas.mark") == 1, "drawn anew, it would flicker"


async def test_the_list_is_walked_and_opened_by_keyboard(scene: Scene, look: Look) -> None:
    await scene.endpoint(name="first")
    second = await scene.endpoint(name="second")
    page = await look(ENDPOINTS)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{page_of(second)}")


async def test_a_viewer_sees_no_action(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint()
    page = await look(page_of(endpoint), role=Role.VIEWER)
    await expect(page.get_by_text("HMAC-SHA256")).to_be_visible()
    assert await page.locator("main .actions").count() == 0
    assert await page.locator("main form").count() == 0
    assert set(await page.locator("main").get_by_role("button").all_text_contents()) <= {"Copy"}
    await page.goto(ENDPOINTS)
    await expect(page.locator("#live tbody tr")).to_have_count(1)
    assert await page.get_by_role("link", name="New endpoint").count() == 0


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; alert(1); //",
    "</textarea><script>alert(1)</script>",
    "</script><svg onload=alert(1)>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "javascript:alert(1)",
    "\u202eevil\u2066",
    "<a href='https://elsewhere.example'>click</a>",
    "<style>*{display:none}</style>",
)


async def test_hostile_names_urls_and_reasons_execute_nothing(scene: Scene, look: Look) -> None:
    made = []
    for text in HOSTILE:
        endpoint = await scene.endpoint(name=text, url=f"{scene.receiver.url()}?q={re.sub(r'[^!-~]', '', text)}")
        await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "test", text)
        made.append(endpoint)
    page = await look(ENDPOINTS)
    shown = await page.locator("#live td.name > a").all_text_contents()
    assert shown == list(HOSTILE)
    for endpoint in made:
        await page.goto(page_of(endpoint))
        await expect(page.locator("h1")).to_contain_text(endpoint.name)
        await ask(page, "Resume")
        await page.keyboard.press("Escape")
        await page.goto(f"{page_of(endpoint)}/edit")
        await expect(page.get_by_label("Name", exact=True)).to_have_value(endpoint.name)


async def test_it_works_without_a_dialog_too(scene: Scene, look: Look) -> None:
    endpoint = await scene.endpoint(name="shop")
    page = await look(f"{page_of(endpoint)}/pause")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.get_by_role("button", name="Pause").click()

    async def paused() -> bool:
        return (await stored(scene, endpoint)).state is EndpointState.PAUSED

    await until(paused, "a paused endpoint")
