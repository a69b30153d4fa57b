"""The acceptance criteria of the sms profile, tested on its example: a real carrier on a socket, and a simulated
clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.client import Conflict, Forbidden, NotFound
from doorstep.model.delivery import DeliveryState
from doorstep.schemas.events import Batch, Submission
from doorstep.testing import status
from examples.counterpart import running
from examples.sms.carrier import (
    BUSY,
    NO_NUMBER,
    PROXY_ALONE,
    REJECTED,
    TOO_MANY,
    WRONG_KEY,
    Answer,
    Carrier,
    refusal,
)
from examples.sms.gateway import CARRIER_CODES
from examples.sms.story import MISPRINT, REMINDERS, Story, run_doorstep
from examples.theatre import Create, Theatre
from tests.examples.looking import PROFILES, delivery_of, since_noon, status_of, story_in

SCHEDULE = [0, 300, 900, 2_100]
"""The first submission, and three more after further 300, 600 and 1200 seconds."""
TO_THE_END = 2_100
A_WEEK = 7 * 86_400


@pytest.fixture
def story() -> Iterator[Story]:
    with running(Carrier) as carrier:
        yield Story(carrier)


@pytest.fixture
def carrier(story: Story) -> Carrier:
    return story.carrier


@pytest.fixture
def create(story: Story) -> Create:
    return story.create


async def submit(stage: Theatre, payload: object = REMINDERS) -> UUID:
    return (await stage.doorstep.batches.submit("sms.batch", payload)).batch_id


async def read(stage: Theatre, batch_id: UUID) -> Batch:
    return await stage.api.batches.read(batch_id)


async def log_of(stage: Theatre, batch_id: UUID) -> list[Submission]:
    return list(await stage.api.batches.attempts(batch_id))


async def failed_batch(stage: Theatre, carrier: Carrier) -> UUID:
    carrier.script = [BUSY] * 4
    batch_id = await submit(stage)
    await stage.pass_time(TO_THE_END)
    assert (await read(stage, batch_id)).status == "FAILED"
    return batch_id


async def test_the_story_is_told_as_its_page_shows_it(stage: Theatre, story: Story, told: list[str]) -> None:
    await story(stage)
    assert "\n".join(told) == story_in(PROFILES / "sms.md")


# -- a batch is PENDING, then CONFIRMED or FAILED ----------------------------------------------------------------------


async def test_r9_3_a_batch_is_pending_and_then_confirmed(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await submit(stage)
    assert (await read(stage, batch_id)).status == "PENDING"
    await stage.pass_time()
    assert (await read(stage, batch_id)).status == "CONFIRMED"
    assert carrier.references == {str(batch_id): "C-1"}


async def test_r9_3_a_batch_is_pending_while_it_is_retried_and_then_failed(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [BUSY] * 4
    batch_id = await submit(stage)
    for elapsed in (0, 300, 600):
        await stage.pass_time(elapsed)
        assert (await read(stage, batch_id)).status == "PENDING"
    await stage.pass_time(1_200)
    assert (await read(stage, batch_id)).status == "FAILED"


async def test_r1_1_the_event_of_a_batch_has_the_statuses_of_every_event(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [BUSY]
    batch_id = await submit(stage)
    seen = [await status_of(stage, batch_id)]
    for elapsed in (0, 300):
        await stage.pass_time(elapsed)
        seen.append(await status_of(stage, batch_id))
    assert seen == ["received", "queued", "delivered"]


async def test_r9_3_a_batch_is_submitted_by_sending_an_event_over_http_too(stage: Theatre) -> None:
    receipt = await stage.api.send("sms.batch", REMINDERS)
    await stage.pass_time()
    assert (await read(stage, receipt.event_id)).status == "CONFIRMED"


# -- each submission attempt is logged ---------------------------------------------------------------------------------


async def test_r9_3_each_attempt_is_logged_with_time_code_response_number_and_next_retry(
    stage: Theatre, carrier: Carrier
) -> None:
    carrier.script = [BUSY, BUSY, BUSY]
    batch_id = await submit(stage)
    await stage.pass_time(TO_THE_END)
    log = await log_of(stage, batch_id)
    assert [one.number for one in log] == [1, 2, 3, 4]
    assert [since_noon(one.at) for one in log] == SCHEDULE
    assert [one.error_code for one in log] == ["SERVICE_UNAVAILABLE"] * 3 + [None]
    assert [one.error_reason for one in log] == ["The carrier answered BUSY-03."] * 3 + [None]
    assert [json.loads(one.carrier_response) for one in log] == [BUSY.body] * 3 + [{"reference": "C-1", "messages": 2}]
    assert [since_noon(one.next_retry_at) for one in log[:3]] == SCHEDULE[1:]
    assert log[3].next_retry_at is None


async def test_r9_3_the_next_retry_that_is_logged_is_the_time_of_the_next_attempt(
    stage: Theatre, carrier: Carrier
) -> None:
    batch_id = await failed_batch(stage, carrier)
    log = await log_of(stage, batch_id)
    assert [one.next_retry_at for one in log[:-1]] == [one.at for one in log[1:]]


async def test_r3_5_neither_numbers_nor_texts_nor_the_key_are_in_any_error(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [BUSY, REJECTED]
    batch_id = await submit(stage)
    await stage.pass_time(300)
    log = str([(one.error_code, one.error_reason) for one in await log_of(stage, batch_id)])
    log += str(await delivery_of(stage, batch_id))
    assert not any(secret in log for secret in ("+15550100", "See you", carrier.api_key))


# -- transient codes are retried, permanent ones not -------------------------------------------------------------------


async def test_r2_2_a_busy_carrier_is_tried_again_after_300_600_and_1200_seconds_and_no_more(
    stage: Theatre, carrier: Carrier
) -> None:
    batch_id = await failed_batch(stage, carrier)
    assert [since_noon(one.at) for one in await log_of(stage, batch_id)] == SCHEDULE
    await stage.pass_time(86_400)
    assert carrier.requests == 4


async def test_r3_3_a_carrier_that_asks_for_patience_is_given_it(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [TOO_MANY]
    batch_id = await submit(stage)
    await stage.pass_time(119)
    assert (await read(stage, batch_id)).status == "PENDING"
    await stage.pass_time(60)
    assert (await read(stage, batch_id)).status == "CONFIRMED"
    first, _ = await log_of(stage, batch_id)
    assert first.error_code == "RATE_LIMIT"
    assert 120 <= since_noon(first.next_retry_at) < 300


@pytest.mark.parametrize("answer", [NO_NUMBER, REJECTED, WRONG_KEY], ids=lambda answer: answer.body["code"])
async def test_r9_3_permanent_codes_are_not_retried(stage: Theatre, carrier: Carrier, answer: Answer) -> None:
    carrier.script = [answer]
    batch_id = await submit(stage)
    await stage.pass_time(86_400)
    batch = await read(stage, batch_id)
    assert (batch.status, batch.attempts) == ("FAILED", 1)
    assert batch.error_code == CARRIER_CODES[str(answer.body["code"])]
    assert carrier.requests == 1


async def test_r3_4_the_carriers_own_judgement_is_translated_by_the_code_map(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await submit(stage, MISPRINT)
    await stage.pass_time()
    assert (await read(stage, batch_id)).error_code == "INVALID_FORMAT"
    assert carrier.references == {}


async def test_r3_4_a_code_that_the_map_does_not_know_is_kept_and_tried_again(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [refusal(500, "NEW-99", "?")]
    batch_id = await submit(stage)
    await stage.pass_time(300)
    first, second = await log_of(stage, batch_id)
    assert (first.error_code, second.error_code) == ("NEW-99", None)


async def test_r3_1_a_carrier_that_cannot_be_reached_is_tried_again(stage: Theatre, story: Story) -> None:
    url, story.gateway.url = story.gateway.url, "http://127.0.0.1:9/batches"
    batch_id = await submit(stage)
    await stage.pass_time()
    (first,) = await log_of(stage, batch_id)
    assert (first.error_code, first.carrier_response) == ("CONNECTION", "")
    story.gateway.url = url
    await stage.pass_time(300)
    assert (await read(stage, batch_id)).status == "CONFIRMED"


async def test_r3_1_an_answer_that_is_not_the_carriers_is_logged_and_the_batch_tried_again(
    stage: Theatre, carrier: Carrier
) -> None:
    carrier.script = [PROXY_ALONE]
    batch_id = await submit(stage)
    await stage.pass_time(300)
    first, second = await log_of(stage, batch_id)
    assert (first.error_code, first.carrier_response) == ("BAD_RESPONSE", "<h1>Bad Gateway</h1>")
    assert second.error_code is None


async def test_a_batch_that_the_carrier_has_twice_is_sent_once(stage: Theatre, carrier: Carrier) -> None:
    """The carrier accepted the batch on the first attempt, but its answer was lost; it recognizes the batch by its
    id."""
    carrier.lost_answers = 1
    batch_id = await submit(stage)
    await stage.pass_time(300)
    first, second = await log_of(stage, batch_id)
    assert (first.error_code, second.error_code) == ("CONNECTION", None)
    assert carrier.requests == 2
    assert carrier.references == {str(batch_id): "C-1"}


async def test_r6_1_a_busy_carrier_is_not_stormed_by_many_batches(stage: Theatre, carrier: Carrier) -> None:
    """After five failures in a row, the other batches wait, and use up no attempts."""
    carrier.script = [BUSY] * 5
    batches = [await submit(stage) for _ in range(5)]
    await stage.pass_time()
    late = await submit(stage)
    await stage.pass_time(0.5)
    assert carrier.requests == 5
    assert (await read(stage, late)).attempts == 0
    assert "circuit is open" in str((await delivery_of(stage, late)).held)
    await stage.pass_time(3_600)
    assert {(await read(stage, one)).status for one in (*batches, late)} == {"CONFIRMED"}


# -- alert after the last failure --------------------------------------------------------------------------------------


async def test_r9_3_there_is_one_alert_after_the_last_failure_and_none_before(
    stage: Theatre, story: Story, carrier: Carrier
) -> None:
    carrier.script = [BUSY] * 4
    await submit(stage)
    await stage.pass_time(TO_THE_END - 1)
    assert story.alerts == []
    await stage.pass_time(1)
    wanted = "ALERT: a batch failed permanently at attempt 4: SERVICE_UNAVAILABLE. The carrier answered BUSY-03."
    assert story.alerts == [wanted]
    await stage.pass_time(86_400)
    assert story.alerts == [wanted]


async def test_what_is_no_batch_gives_no_alarm(stage: Theatre, story: Story) -> None:
    stage.receiver.behaves(status(404))
    url = stage.receiver.url("/elsewhere")
    await stage.doorstep.create_endpoint(name="elsewhere", url=url, event_types=["order.*"])
    receipt = await stage.doorstep.send("order.paid", {"order": 1})
    await stage.pass_time()
    (delivery,) = await stage.doorstep.components.reader.deliveries(DEFAULT_ORG, receipt.event_id)
    assert (delivery.state, story.alerts) == (DeliveryState.DEAD, [])


async def test_r3_2_a_permanent_failure_alerts_at_once(stage: Theatre, story: Story) -> None:
    await submit(stage, MISPRINT)
    await stage.pass_time()
    assert len(story.alerts) == 1


async def test_r9_3_a_batch_that_is_confirmed_on_a_retry_alerts_nobody(
    stage: Theatre, story: Story, carrier: Carrier
) -> None:
    carrier.script = [BUSY] * 3
    batch_id = await submit(stage)
    await stage.pass_time(TO_THE_END)
    assert (await read(stage, batch_id)).status == "CONFIRMED"
    assert (await delivery_of(stage, batch_id)).remark == "Succeeded on retry attempt 3"
    assert story.alerts == []


# -- resubmission ------------------------------------------------------------------------------------------------------


async def test_r9_3_a_failed_batch_is_resubmitted_by_api_at_once(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await failed_batch(stage, carrier)
    assert (await stage.api.batches.resubmit(batch_id)).status == "PENDING"
    await stage.pass_time()
    assert (await read(stage, batch_id)).status == "CONFIRMED"
    assert list(carrier.references) == [str(batch_id)]


async def test_r9_3_a_resubmission_resets_the_counter(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await failed_batch(stage, carrier)
    assert (await read(stage, batch_id)).retry_attempts == 3
    carrier.script = [BUSY] * 4
    assert (await stage.api.batches.resubmit(batch_id)).retry_attempts == 0
    await stage.pass_time(TO_THE_END)
    batch, log = await read(stage, batch_id), await log_of(stage, batch_id)
    assert (batch.status, batch.retry_attempts, batch.attempts) == ("FAILED", 3, 8)
    assert [since_noon(one.at) - TO_THE_END for one in log[4:]] == SCHEDULE


async def test_r9_3_a_resubmission_that_fails_for_good_alerts_again(
    stage: Theatre, story: Story, carrier: Carrier
) -> None:
    batch_id = await failed_batch(stage, carrier)
    carrier.script = [REJECTED]
    await stage.api.batches.resubmit(batch_id)
    await stage.pass_time()
    assert [line.split(":")[1] for line in story.alerts] == [
        " a batch failed permanently at attempt 4",
        " a batch failed permanently at attempt 5",
    ]


async def test_r9_3_a_resubmission_is_logged_with_who_and_why(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await failed_batch(stage, carrier)
    operator = await stage.client("operator")
    await operator.batches.resubmit(batch_id, reason="the carrier is back")
    (line,) = await stage.api.audit.page(action="batch.resubmit")
    roles = {key.name: key.role for key in await stage.api.keys.page()}
    assert (line.subjects, line.result, line.reason) == ((str(batch_id),), "1 done, 0 refused", "the carrier is back")
    assert roles[line.actor] == "operator"
    history = await stage.api.deliveries.history((await read(stage, batch_id)).delivery_id)
    assert list(history)[-1].note == f"retried by {line.actor}: the carrier is back"


async def test_r9_3_a_failed_batch_is_resubmitted_at_a_terminal(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await failed_batch(stage, carrier)
    assert str(batch_id) in await run_doorstep(stage, "batches", "list", "--status", "FAILED")
    printed = await run_doorstep(stage, "batches", "resubmit", str(batch_id), "--reason", "the carrier is back")
    assert printed == f"Batch {batch_id} is PENDING again.\n"
    await stage.pass_time()
    assert json.loads(await run_doorstep(stage, "batches", "show", str(batch_id), "--json"))["status"] == "CONFIRMED"
    log = json.loads(await run_doorstep(stage, "batches", "attempts", str(batch_id), "--json"))
    assert [one["number"] for one in log["attempts"]] == [1, 2, 3, 4, 5]


async def test_r7_5_only_a_failed_batch_can_be_resubmitted(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [BUSY]
    pending = await submit(stage)
    await stage.pass_time()
    with pytest.raises(Conflict, match="is PENDING"):
        await stage.api.batches.resubmit(pending)
    await stage.pass_time(300)
    with pytest.raises(Conflict, match="is CONFIRMED"):
        await stage.api.batches.resubmit(pending)
    assert carrier.requests == 2


async def test_r7_6_a_viewer_may_look_and_not_resubmit(stage: Theatre, carrier: Carrier) -> None:
    batch_id = await failed_batch(stage, carrier)
    viewer = await stage.client("viewer")
    assert (await viewer.batches.read(batch_id)).status == "FAILED"
    with pytest.raises(Forbidden):
        await viewer.batches.resubmit(batch_id)


async def test_r4_4_a_failed_batch_that_nobody_touched_for_a_week_can_still_be_resubmitted(
    stage: Theatre, carrier: Carrier
) -> None:
    batch_id = await failed_batch(stage, carrier)
    await stage.pass_time(A_WEEK + 3_600)
    assert (await delivery_of(stage, batch_id)).state == "archived"
    assert [one.batch_id for one in await stage.api.batches.page(status="FAILED")] == [batch_id]
    await stage.api.batches.resubmit(batch_id)
    await stage.pass_time()
    assert (await read(stage, batch_id)).status == "CONFIRMED"


# -- found by status ---------------------------------------------------------------------------------------------------


async def test_r9_3_batches_are_found_by_status(stage: Theatre, carrier: Carrier) -> None:
    carrier.script = [BUSY, REJECTED]
    pending = await submit(stage)
    await stage.pass_time(1)
    failed = await submit(stage)
    await stage.pass_time(1)
    confirmed = await submit(stage)
    await stage.pass_time()
    found = {
        status: [one.batch_id for one in await stage.api.batches.page(status=status)]
        for status in ("PENDING", "CONFIRMED", "FAILED")
    }
    assert found == {"PENDING": [pending], "CONFIRMED": [confirmed], "FAILED": [failed]}
    assert [one.batch_id for one in await stage.api.batches.page()] == [confirmed, failed, pending]


async def test_an_event_that_is_no_batch_is_not_among_them(stage: Theatre) -> None:
    receipt = await stage.api.send("order.paid", {})
    assert list(await stage.api.batches.page()) == []
    with pytest.raises(NotFound):
        await stage.api.batches.read(receipt.event_id)
