"""An action started from a list runs only once, and the user keeps their place in the list."""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, Request, Route, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import Delivery, DeliveryState
from tests.console.chromium import Look
from tests.console.queueing import QUEUE, failing
from tests.support.scene import Scene

TOLD, BOXES = "#told", "input[data-row]"


def posts_of(page: Page) -> list[str]:
    """Record the URLs of all forms that this page submits from now on."""
    sent: list[str] = []

    def on_request(request: Request) -> None:
        if request.method == "POST":
            sent.append(request.url)

    page.on("request", on_request)
    return sent


async def slow(page: Page, pattern: str) -> asyncio.Event:
    """Delay requests that match the pattern until the returned event is set."""
    gate = asyncio.Event()

    async def held(route: Route) -> None:
        await gate.wait()
        await route.continue_()

    await page.route(pattern, held)
    return gate


async def focused(page: Page) -> str:
    return str(await page.evaluate("document.activeElement.id"))


def row_of(delivery: Delivery) -> str:
    return f"row-{delivery.delivery_id}"


# -- acting on rows one after the other -------------------------------------------------------------------------------


async def test_rows_are_retried_one_after_the_other_by_keyboard_and_place_and_ticks_stay(
    scene: Scene, look: Look
) -> None:
    first, second, third, *_ = await failing(scene, 30)
    page = await look(QUEUE)
    await page.evaluate("window.loadedOnce = true")
    for delivery in (first, second):
        await page.keyboard.press("j")
        assert await focused(page) == row_of(delivery)
        async with page.expect_response(lambda answer: answer.request.method == "POST"):
            await page.keyboard.press("r")
        await expect(page.locator(TOLD)).to_contain_text("Retry failed: ")
        await expect(page.locator(f"#{row_of(delivery)}")).to_contain_text("1 / 3")  # the row also moves down
    assert await page.evaluate("window.loadedOnce") is True
    tick = page.locator(f"#tick-{third.delivery_id}")
    last = page.locator("tr[data-open]").last
    await tick.check()
    await last.scroll_into_view_if_needed()
    before = await page.evaluate("scrollY")
    async with page.expect_response(lambda answer: answer.request.method == "POST"):
        await last.get_by_role("button", name="Retry now").click()
    await expect(page.locator(TOLD)).to_be_in_viewport()
    await expect(tick).to_be_checked()
    assert before > 0
    assert await page.evaluate("scrollY") == before


async def test_where_a_row_has_left_the_list_the_keys_go_on_with_the_one_that_took_its_place(
    scene: Scene, look: Look
) -> None:
    _, first, second, third = await failing(scene, 4)
    page = await look(QUEUE)
    scene.receiver.says(200)
    await page.keyboard.press("j")
    for delivery in (first, second):
        await page.keyboard.press("j")
        assert await focused(page) == row_of(delivery)
        await page.keyboard.press("r")
        await scene.until_state(delivery, DeliveryState.DELIVERED)
        await page.keyboard.press(".")
        await expect(page.locator(f"#{row_of(delivery)}")).to_have_count(0)
        await page.keyboard.press("r")  # affects no row and nothing else
    await page.keyboard.press("j")
    assert await focused(page) == row_of(third)
    assert await page.locator("dialog[open]").count() == 0
    assert (await scene.delivery(third)).attempt == 1


async def test_a_question_about_one_row_is_answered_without_leaving_the_list(scene: Scene, look: Look) -> None:
    first, second = await failing(scene, 2)
    page = await look(QUEUE)
    await page.evaluate("window.loadedOnce = true")
    await page.locator(f"#tick-{second.delivery_id}").check()
    await page.locator(f"#{row_of(first)}").get_by_role("link", name="Skip").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("cancelled by phone")
    await page.get_by_role("dialog").get_by_role("button", name="Skip 1").click()
    await expect(page.locator(TOLD)).to_have_text("Moved to dead letters.")
    await expect(page.locator(f"#{row_of(first)}")).to_have_count(0)
    await expect(page.locator(f"#tick-{second.delivery_id}")).to_be_checked()
    assert await page.locator("dialog[open]").count() == 0
    assert await page.evaluate("window.loadedOnce") is True


async def test_what_a_question_leads_to_says_what_was_begun(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    scene.receiver.says(200)
    await page.get_by_role("link", name="Retry all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry now 2").click()
    await page.wait_for_url("**/console/bulk/*")
    await expect(page.locator(TOLD)).to_contain_text("Retry finished: 2/2 succeeded, 0 failed.")


async def test_an_act_that_gets_no_answer_is_told(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    await page.route("**/retry", lambda route: route.abort())
    await page.locator(f"#{row_of(delivery)}").get_by_role("button", name="Retry now").click()
    await expect(page.locator(TOLD)).to_contain_text("No response.")


async def test_what_goes_wrong_with_a_question_is_told_where_it_is_asked(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    await page.route("**/skip", lambda route: route.abort())
    await page.locator(f"#{row_of(delivery)}").get_by_role("link", name="Skip").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("it is too late")
    await dialog.get_by_role("button", name="Skip").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("No response.")
    await expect(dialog.get_by_label("Reason")).to_have_value("it is too late")


async def test_a_list_that_cannot_be_had_after_an_act_keeps_what_it_has(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    await page.evaluate(
        "window.fetch = async () => ({ redirected: true, ok: false, url: location.href, text: async () => 'down' })"
    )
    await page.locator(f"#{row_of(delivery)}").get_by_role("button", name="Retry now").click()
    await expect(page.locator("#live-status")).to_contain_text("Could not refresh.")
    await expect(page.locator(f"#{row_of(delivery)}")).to_be_visible()


# -- each action runs once --------------------------------------------------------------------------------------------


async def test_a_second_click_sends_nothing_more_until_the_answer_is_there(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(f"{QUEUE}/retry?all=yes")
    sent, gate = posts_of(page), await slow(page, "**/console/retry-queue/retry")
    await page.get_by_role("button", name="Retry now 2").evaluate(
        """it => Promise.all([0, 100, 200].map(after => new Promise(clicked => setTimeout(() => {
            it.click(); clicked(); }, after))))"""
    )
    gate.set()
    await page.wait_for_url("**/console/bulk/*")
    assert len(sent) == 1


async def test_a_key_that_is_held_down_acts_once_and_a_row_that_is_clicked_twice_too(scene: Scene, look: Look) -> None:
    first, second = await failing(scene, 2)
    page = await look(QUEUE)
    sent, gate = posts_of(page), await slow(page, "**/retry")
    await page.keyboard.press("j")
    for _ in range(3):
        await page.keyboard.down("r")
    await page.keyboard.up("r")
    for _ in range(2):
        await page.locator(f"#{row_of(second)}").get_by_role("button", name="Retry now").click()
    gate.set()
    await expect(page.locator(TOLD)).to_contain_text("Retry failed: ")
    assert sorted(one.rsplit("/", 2)[1] for one in sent) == sorted(str(one.delivery_id) for one in (first, second))


# -- the list itself --------------------------------------------------------------------------------------------------


async def test_cancel_leads_back_where_a_question_is_a_page_of_its_own(scene: Scene, look: Look) -> None:
    await failing(scene, 1)
    page = await look(f"{QUEUE}/skip?all=yes&back={QUEUE}")
    await page.get_by_role("link", name="Cancel").click()
    await expect(page.get_by_role("heading", name="Retry queue")).to_be_visible()


async def test_an_answer_that_was_under_way_when_a_row_was_ticked_does_not_change_the_list(
    scene: Scene, look: Look
) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    gate = await slow(page, f"**{QUEUE}")
    async with page.expect_request(lambda request: "hx-request" in request.headers):
        pass  # automatically, after three seconds
    await page.locator(BOXES).first.check()
    await failing(scene, 1, "other-erp")
    async with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        gate.set()
    await page.locator("#live:not(.htmx-request)").wait_for()
    assert await page.locator("#live tbody tr").count() == 2


async def test_ticking_a_row_moves_none_of_them(scene: Scene, look: Look) -> None:
    await failing(scene, 2)
    page = await look(QUEUE)
    await expect(page.locator(".summary")).to_contain_text("2 deliveries")
    row = page.locator("tr[data-open]").first
    before = await row.bounding_box()
    await row.locator(BOXES).check()
    await expect(page.locator(".summary")).to_be_hidden()
    assert await row.bounding_box() == before


async def test_a_click_on_a_row_opens_it_unless_it_means_something_in_it(scene: Scene, look: Look) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    row = page.locator(f"#{row_of(delivery)}")
    await row.locator("td.box").click(position={"x": 2, "y": 2})
    await row.locator("code").dblclick()
    assert page.url.endswith(QUEUE)
    await row.locator("td.number").click()
    await page.wait_for_url(f"**/console/events/{delivery.event_id}#delivery-{delivery.delivery_id}")


async def test_a_row_that_is_held_is_as_low_as_the_others_and_says_why_when_it_is_opened(
    scene: Scene, look: Look
) -> None:
    (delivery,) = await failing(scene, 1)
    page = await look(QUEUE)
    low = await page.locator("tr[data-open]").first.bounding_box()
    await scene.doorstep.components.endpoints.pause(
        DEFAULT_ORG, delivery.endpoint_id, "test", "moves to another building this afternoon"
    )
    await page.keyboard.press(".")
    held = page.locator("details.held")
    await expect(held).to_contain_text("held")
    box = await page.locator("tr[data-open]").first.bounding_box()
    assert low is not None
    assert box is not None
    assert box["height"] <= low["height"] + 1
    await held.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(held).to_contain_text("The endpoint is paused: moves to another building this afternoon")
    assert page.url.endswith(QUEUE)
