"""The acceptance criteria of the triggers profile, tested on its example."""

from __future__ import annotations

from uuid import UUID

import pytest

import examples.triggers.program as profile
from doorstep.client import Conflict, Forbidden, Invalid, NotFound
from doorstep.testing import dead, ok, reset, scripted, status
from examples.theatre import Create, Theatre
from examples.triggers.endpoints import automation
from examples.triggers.story import story
from tests.examples.looking import PROFILES, attempts_of, delivery_of, since_noon, starts_of, status_of, story_in

AT_ONCE = 0.0
SCHEDULE = [0, 60, 360, 1_260]
"""The first attempt, and retries after further 60, 300 and 900 seconds."""
A_WEEK = 7 * 86_400


@pytest.fixture
def create() -> Create:
    return profile.create


async def test_the_story_is_told_as_its_page_shows_it(stage: Theatre, told: list[str]) -> None:
    await story(stage)
    assert "\n".join(told) == story_in(PROFILES / "triggers.md")


async def send(stage: Theatre, *answers: int) -> UUID:
    """Send a lead to an automation that returns these answers."""
    stage.receiver.behaves(scripted(answers or [200]))
    await stage.api.endpoints.create(**automation(stage.receiver.url()))
    return (await stage.api.send("lead.created", {"lead": "Ada"})).event_id


async def failed(stage: Theatre) -> UUID:
    event_id = await send(stage, 500)
    await stage.pass_time(1_260)
    return event_id


# -- R1: statuses ------------------------------------------------------------------------------------------------------


async def test_r1_1_an_event_is_received_until_it_is_picked_up_then_queued_and_delivered(stage: Theatre) -> None:
    event_id = await send(stage, 503, 200)
    seen = [await status_of(stage, event_id)]
    await stage.pass_time()
    seen.append(await status_of(stage, event_id))
    await stage.pass_time(60)
    assert [*seen, await status_of(stage, event_id)] == ["received", "queued", "delivered"]


async def test_r1_1_an_event_is_failed_when_nothing_is_left_to_try(stage: Theatre) -> None:
    event_id = await send(stage, 503)
    await stage.pass_time(1_259)
    assert await status_of(stage, event_id) == "queued"
    await stage.pass_time(1)
    assert await status_of(stage, event_id) == "failed"


async def test_r1_1_an_inbox_event_is_received_until_its_consumer_acknowledges_it(stage: Theatre) -> None:
    event_id = (await stage.api.send("form.submitted", {})).event_id
    await stage.pass_time(86_400)
    assert await status_of(stage, event_id) == "received"
    await stage.api.inbox.acknowledge(event_id)
    assert await status_of(stage, event_id) == "delivered"
    assert len(await stage.api.inbox.page()) == 0


async def test_r1_1_an_event_that_is_pushed_cannot_be_acknowledged(stage: Theatre) -> None:
    with pytest.raises(Conflict):
        await stage.api.inbox.acknowledge(await send(stage))


async def test_r1_3_delivered_is_final(stage: Theatre) -> None:
    event_id = await send(stage)
    await stage.pass_time()
    with pytest.raises(Conflict):
        await stage.api.events.retry(event_id)
    await stage.pass_time(86_400)
    assert (await status_of(stage, event_id), len(stage.receiver.requests)) == ("delivered", 1)


async def test_r1_3_a_failed_event_is_left_alone_by_the_machine(stage: Theatre) -> None:
    event_id = await failed(stage)
    stage.receiver.behaves(ok)
    await stage.pass_time(6 * 86_400)
    assert (await status_of(stage, event_id), len(stage.receiver.requests)) == ("failed", 4)


async def test_r1_4_the_life_of_an_event_can_be_read_back_in_order(stage: Theatre) -> None:
    delivery = await delivery_of(stage, await failed(stage))
    history = await stage.api.deliveries.history(delivery.delivery_id)
    assert [line.new_state for line in history] == ["pending", *["in_progress", "pending"] * 3, "in_progress", "dead"]


# -- R2: retries -------------------------------------------------------------------------------------------------------


async def test_r2_1_three_retries_mean_four_attempts_in_all(stage: Theatre) -> None:
    event_id = await failed(stage)
    assert (await stage.api.events.status(event_id)).retry_attempts == 3
    assert len(await attempts_of(stage, event_id)) == len(stage.receiver.requests) == 4


async def test_r2_2_the_retries_come_after_one_five_and_fifteen_minutes(stage: Theatre) -> None:
    assert await starts_of(stage, await failed(stage)) == SCHEDULE


async def test_r2_6_the_next_retry_that_is_polled_is_the_time_that_is_used(stage: Theatre) -> None:
    event_id = await send(stage, 503)
    polled = [AT_ONCE]
    for pause in (0, 60, 300):
        await stage.pass_time(pause)
        polled.append(since_noon((await stage.api.events.status(event_id)).next_retry_at))
    await stage.pass_time(900)
    assert await starts_of(stage, event_id) == polled == SCHEDULE
    assert (await stage.api.events.status(event_id)).next_retry_at is None


# -- R3: errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [301, 400, 401, 403, 404, 408, 418, 422, 429, 500, 503])
async def test_r3_2_everything_is_retried_whatever_the_answer(stage: Theatre, answer: int) -> None:
    event_id = await send(stage, answer, 200)
    await stage.pass_time(60)
    assert (await status_of(stage, event_id), await starts_of(stage, event_id)) == ("delivered", [0, 60])


async def test_r3_2_the_control_what_an_endpoint_gives_up_on_is_final(stage: Theatre) -> None:
    stage.receiver.behaves(status(404))
    await stage.api.endpoints.create(**automation(stage.receiver.url()) | {"give_up_on": ["404"]})
    event_id = (await stage.api.send("lead.created", {})).event_id
    await stage.pass_time()
    assert await status_of(stage, event_id) == "failed"


async def test_r3_1_every_failed_attempt_has_a_category_a_code_and_a_sentence(stage: Theatre) -> None:
    event_id = await send(stage, 404, 503, 429, 200)
    await stage.pass_time(1_260)
    rows = [(row.error_category, row.error_code, row.error_reason) for row in await attempts_of(stage, event_id)]
    assert rows == [
        ("transient", "NOT_FOUND", "The receiver does not know this URL (404 Not Found)."),
        ("transient", "SERVICE_UNAVAILABLE", "The receiver could not handle the request (503 Service Unavailable)."),
        ("transient", "RATE_LIMIT", "The receiver asks to slow down (429 Too Many Requests)."),
        (None, None, ""),
    ]


async def test_r3_1_a_connection_that_breaks_is_retried_too(stage: Theatre) -> None:
    event_id = await send(stage)
    stage.receiver.behaves(reset)
    await stage.pass_time()
    assert [row.error_code for row in await attempts_of(stage, event_id)] == ["CONNECTION"]
    assert since_noon((await stage.api.events.status(event_id)).next_retry_at) == 60


async def test_r3_1_no_answer_in_time_is_a_timeout(stage: Theatre) -> None:
    stage.receiver.behaves(dead)
    await stage.api.endpoints.create(**automation(stage.receiver.url()) | {"timeout_seconds": 0.2})
    event_id = (await stage.api.send("lead.created", {})).event_id
    await stage.pass_time()
    assert [row.error_code for row in await attempts_of(stage, event_id)] == ["TIMEOUT"]


async def test_r3_1_gone_is_retried_too_and_disables_nothing(stage: Theatre) -> None:
    event_id = await send(stage, 410, 200)
    await stage.pass_time(60)
    assert (await status_of(stage, event_id), await starts_of(stage, event_id)) == ("delivered", [0, 60])
    (endpoint,) = await stage.api.endpoints.page()
    assert endpoint.state == "active"


async def test_r3_3_a_receiver_that_asks_for_another_delay_does_not_get_it(stage: Theatre) -> None:
    event_id = await send(stage)
    stage.receiver.behaves(status(429, "Retry-After: 3600"))
    await stage.pass_time(1_260)
    assert await starts_of(stage, event_id) == SCHEDULE


async def test_r3_5_no_error_holds_the_payload(stage: Theatre) -> None:
    event_id = await send(stage)
    stage.receiver.behaves(status(422, body=b'{"wrong": "the name"}'))
    await stage.pass_time()
    (row,) = await attempts_of(stage, event_id)
    assert "Ada" not in row.error_reason + row.error_detail
    assert row.response_body == '{"wrong": "the name"}'


# -- R4: the attempt log -----------------------------------------------------------------------------------------------


async def test_r4_1_every_attempt_has_one_row_the_successful_one_too(stage: Theatre) -> None:
    event_id = await send(stage, 500, 200)
    await stage.pass_time(60)
    rows = await attempts_of(stage, event_id)
    assert [(row.number, row.response_code, row.next_retry_at is None) for row in rows] == [
        (1, 500, False),
        (2, 200, True),
    ]
    assert all(row.duration_ms >= 0 and row.worker and "webhook-signature" in row.request_headers for row in rows)


async def test_r4_3_a_delivery_says_on_which_retry_it_succeeded(stage: Theatre) -> None:
    event_id = await send(stage, 500, 404, 200)
    await stage.pass_time(360)
    delivery = await delivery_of(stage, event_id)
    assert (delivery.remark, delivery.response_code) == ("Succeeded on retry attempt 2", 200)


async def test_r4_4_a_delivered_event_is_forgotten_after_seven_days(stage: Theatre) -> None:
    event_id = await send(stage)
    await stage.pass_time(A_WEEK - 60)
    assert await status_of(stage, event_id) == "delivered"
    await stage.pass_time(120)
    with pytest.raises(NotFound):
        await stage.api.events.status(event_id)


async def test_r4_4_a_failed_event_is_kept_and_its_dead_letter_is_archived_after_seven_days(stage: Theatre) -> None:
    event_id = await failed(stage)
    await stage.pass_time(A_WEEK + 60)
    assert await status_of(stage, event_id) == "failed"
    assert len(await stage.api.dead_letters.page()) == 0
    (archived,) = await stage.api.dead_letters.page(status="archived")
    assert (archived.event_id, archived.state) == (event_id, "archived")


# -- R6: the circuit ---------------------------------------------------------------------------------------------------


async def test_r6_1_no_circuit_holds_an_event_back_however_many_fail(stage: Theatre) -> None:
    stage.receiver.behaves(status(503))
    await stage.api.endpoints.create(**automation(stage.receiver.url()))
    sent = [(await stage.api.send("lead.created", {"lead": n})).event_id for n in range(8)]
    await stage.pass_time(1_260)
    assert [await starts_of(stage, event_id) for event_id in sent] == [SCHEDULE] * 8
    assert {await status_of(stage, event_id) for event_id in sent} == {"failed"}


# -- R7 and R8: failed events, retried by hand -------------------------------------------------------------------------


async def test_r8_3_failed_events_are_listed_page_by_page_oldest_first(stage: Theatre) -> None:
    stage.receiver.behaves(status(500))
    await stage.api.endpoints.create(**automation(stage.receiver.url()))
    sent = []
    for lead in range(5):
        sent.append((await stage.api.send("lead.created", {"lead": lead})).event_id)
        stage.clock.advance(1)
    await stage.pass_time(1_260)
    page = await stage.api.inbox.page(status="failed", limit=2)
    assert (page.pagination.limit, page.pagination.has_more, page.pagination.total_count) == (2, True, 5)
    failed = [item async for item in stage.api.inbox.each(status="failed", limit=2)]
    assert [(item.event_id, item.payload) for item in failed] == [(one, {"lead": n}) for n, one in enumerate(sent)]


async def test_r8_3_any_other_status_is_refused(stage: Theatre) -> None:
    with pytest.raises(Invalid):
        await stage.api.inbox.page(status="delivered")


async def test_r7_4_a_manual_retry_begins_anew_in_five_seconds(stage: Theatre) -> None:
    event_id = await failed(stage)
    stage.receiver.behaves(ok)
    await stage.api.events.retry(event_id)
    seen = await stage.api.events.status(event_id)
    assert (seen.status, seen.retry_attempts, since_noon(seen.next_retry_at)) == ("queued", 0, 1_265)
    await stage.pass_time(5)
    assert await status_of(stage, event_id) == "delivered"


async def test_r7_4_a_manual_retry_that_fails_has_all_its_retries_before_it(stage: Theatre) -> None:
    stage.receiver.behaves(status(500))
    await stage.api.endpoints.create(**automation(stage.receiver.url()))
    event_id = (await stage.api.send("lead.created", {})).event_id
    await stage.pass_time(1_260)
    await stage.api.events.retry(event_id)
    await stage.pass_time(5)
    assert await status_of(stage, event_id) == "queued"
    await stage.pass_time(1_260)
    assert await starts_of(stage, event_id) == [*SCHEDULE, *(1_265 + at for at in SCHEDULE)]
    assert await status_of(stage, event_id) == "failed"


async def test_r7_6_a_publisher_may_send_and_poll_and_nothing_else(stage: Theatre) -> None:
    async with await stage.client("publisher") as website:
        receipt = await website.send("form.submitted", {})
        assert (await website.events.status(receipt.event_id)).status == "received"
        with pytest.raises(Forbidden):
            await website.inbox.acknowledge(receipt.event_id)
        with pytest.raises(Forbidden):
            await website.inbox.page()


async def test_r7_6_one_key_may_send_read_the_inbox_acknowledge_and_read_the_status(stage: Theatre) -> None:
    async with await stage.client("consumer") as website:
        first = (await website.send("form.submitted", {"n": 0})).event_id
        stage.clock.advance(1)
        sent = [first, (await website.send("form.submitted", {"n": 1})).event_id]
        (listed, _) = await website.inbox.page()
        assert (listed.event_id, listed.payload) == (first, {"n": 0})
        await website.inbox.acknowledge(listed.event_id)
        (leased,) = await website.inbox.lease()
        await website.inbox.acknowledge(leased)
        assert [(await website.events.status(one)).status for one in sent] == ["delivered"] * 2
        with pytest.raises(Forbidden):
            await website.events.page()


async def test_r7_6_a_manual_retry_is_in_the_audit_log(stage: Theatre) -> None:
    event_id = await failed(stage)
    await stage.api.events.retry(event_id, reason="repaired")
    line = next(iter(await stage.api.audit.page()))
    delivery = await delivery_of(stage, event_id)
    assert ("retry" in line.action, line.reason) == (True, "repaired")
    assert str(delivery.delivery_id) in line.subjects


async def test_r8_2_the_polled_status_has_exactly_six_fields_and_never_the_payload(stage: Theatre) -> None:
    event_id = await send(stage)
    seen = await stage.api.events.status(event_id)
    assert seen.__struct_fields__ == (
        "event_id",
        "status",
        "retry_attempts",
        "last_retry_at",
        "failed_at",
        "next_retry_at",
    )
