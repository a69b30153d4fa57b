"""Alerts as an operator uses them in a browser: an alert fires and is acknowledged, a rule changes, a channel is
tested."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect
from standardwebhooks.webhooks import Webhook

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.alert import Rule
from doorstep.model.org import Role
from tests.console.conftest import Look
from tests.console.firing import ALERTS, fire
from tests.console.test_alerts import channel, rule_of, silences
from tests.support.scene import Scene, until


async def answer(page: Page, label: str) -> None:
    await page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


@pytest.mark.key_story
async def test_an_alert_appears_by_itself_and_is_acknowledged_and_leads_to_what_failed(
    scene: Scene, look: Look
) -> None:
    page = await look(ALERTS)
    await expect(page.get_by_text("No alerts.")).to_be_visible()
    alert = await fire(scene)
    row = page.locator(f"#row-{alert.alert_id}")
    await expect(row).to_contain_text("erp: a delivery failed permanently")
    await row.get_by_role("button", name="Acknowledge").click()
    await expect(page.get_by_text("Acknowledged: others see that you are working on it.")).to_be_visible()
    await expect(row.get_by_role("button")).to_have_count(0)
    kept = await scene.doorstep.components.alerts.alert(DEFAULT_ORG, alert.alert_id)
    assert kept.acknowledged_at is not None
    await expect(row.get_by_title(kept.acknowledged_by)).to_be_visible()

    await row.get_by_role("link", name="erp: a delivery failed permanently").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("erp: a delivery failed permanently")
    await page.get_by_role("link", name="Open the event").click()
    await page.wait_for_url(f"**/console/events/{alert.event_id}")


async def test_a_threshold_is_changed_in_a_dialog_and_counts(scene: Scene, look: Look) -> None:
    page = await look(f"{ALERTS}/rules")
    row = page.locator("tr", has_text="Dead letters").filter(has_text="than 50")
    await row.get_by_role("link", name="Edit").click()
    question = page.get_by_role("dialog")
    await question.get_by_label("More than").fill("0")
    await answer(page, "Save")
    await expect(page.get_by_text("Dead letters: saved.")).to_be_visible()
    await expect(page.locator("tr", has_text="there are more than 0 dead letters")).to_be_visible()
    rule = await rule_of(scene, Rule.DEAD_LETTERS)
    assert rule is not None and rule.threshold == 0

    await fire(scene)  # one dead letter exceeds a threshold of none
    page = await look(f"{ALERTS}?rule=dead_letters")
    await expect(page.get_by_role("link", name="1 dead letters")).to_be_visible()


async def test_an_endpoint_gets_its_own_rule_through_two_questions(scene: Scene, look: Look) -> None:
    await scene.endpoint(name="erp")
    page = await look(f"{ALERTS}/rules")
    await page.get_by_role("link", name="Rule for one endpoint").click()
    question = page.get_by_role("dialog")
    await question.get_by_label("Rule", exact=True).select_option(label="Oldest due")
    await question.get_by_label("Endpoint", exact=True).select_option(label="erp")
    await answer(page, "Next")
    await expect(question.get_by_role("heading", name="Oldest due of erp")).to_be_visible()
    await question.get_by_label("Overdue by").fill("2h")
    await answer(page, "Save")
    await expect(page.locator("tr", has_text="erp")).to_contain_text("overdue by more than 2\u2009h")
    own = await rule_of(scene, Rule.OLDEST_DUE, "erp")
    assert own is not None and own.threshold == 7_200


@pytest.mark.key_story
async def test_a_channel_is_made_and_a_test_arrives_signed_with_the_secret_that_was_shown(
    scene: Scene, look: Look
) -> None:
    page = await look(f"{ALERTS}/channels")
    await page.get_by_role("link", name="New channel").click()
    await page.get_by_label("Kind").select_option(label="Webhook")
    await page.get_by_label("Name", exact=True).fill("pager")
    await page.get_by_label("Target").fill(scene.receiver.url("/pager"))
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="Created pager")).to_be_visible()
    secret = await page.locator("#secret").inner_text()
    await page.get_by_role("link", name="Go to channels").click()
    row = page.locator("tr", has_text="pager")
    await expect(row).to_be_visible()
    assert secret not in await page.content()

    await row.get_by_role("button", name="Send a test").click()
    await expect(page.get_by_text("The test was sent")).to_be_visible()
    await expect(row.locator(".badge.delivered")).to_be_visible()
    await until(lambda: len(scene.receiver.requests) == 1, "the test at the receiver")
    (request,) = scene.receiver.requests
    assert b"This is a test of the channel pager" in request.body
    Webhook(secret).verify(request.body, request.headers)


async def test_a_form_that_is_wrong_comes_back_with_what_was_entered(scene: Scene, look: Look) -> None:
    page = await look(f"{ALERTS}/channels/new")
    await page.get_by_label("Kind").select_option(label="Webhook")
    await page.get_by_label("Name", exact=True).fill("pager")
    await page.get_by_label("Target").fill("nowhere")
    await page.get_by_label("Circuit opened").check()
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_label("Target")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("Target")).to_have_value("nowhere")
    await expect(page.get_by_label("Circuit opened")).to_be_checked()


async def test_an_alert_is_silenced_from_its_page_and_the_silence_ended(scene: Scene, look: Look) -> None:
    await channel(scene)
    alert = await fire(scene)
    page = await look(f"{ALERTS}/{alert.alert_id}")
    await page.get_by_role("link", name="Silence", exact=True).click()
    question = page.get_by_role("dialog")
    await expect(question.get_by_label("Rule", exact=True)).to_have_value("dead_letter")
    await question.get_by_label("Reason").fill("we know")
    await answer(page, "Silence")
    await expect(page.get_by_text("No notifications during the silence.")).to_be_visible()
    (made,) = await silences(scene)
    assert (made.rule, made.endpoint_id, made.reason) == (Rule.DEAD_LETTER, alert.endpoint_id, "we know")
    await page.get_by_role("navigation", name="Screens").get_by_role("link", name="Alerts").click()
    await page.get_by_role("link", name="Silences").click()
    await page.locator(f"#row-{made.silence_id}").get_by_role("button", name="End now").click()
    await expect(page.get_by_text("No silences.")).to_be_visible()
    assert await silences(scene) == []


async def test_a_viewer_sees_no_action_on_any_of_them(scene: Scene, look: Look) -> None:
    await channel(scene)
    alert = await fire(scene)
    page = await look(ALERTS, role=Role.VIEWER)
    for path in ("", "/rules", "/channels", "/silences", f"/{alert.alert_id}"):
        await page.goto(ALERTS + path)
        buttons = await page.locator("main").get_by_role("button").all_text_contents()
        assert buttons in ([], ["Filter"]), path
        assert await page.locator("main a[data-dialog]").count() == 0, path
