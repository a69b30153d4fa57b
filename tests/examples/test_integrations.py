"""The acceptance criteria of the integrations profile, tested on its example."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from doorstep.client import Conflict, Forbidden, Selection
from doorstep.clock import to_datetime
from doorstep.schemas.deliveries import DeadLetter, QueuedDelivery
from doorstep.testing import ok, status
from examples.integrations import program
from examples.integrations.endpoints import ErpError, crm
from examples.integrations.story import INVOICE, Story
from examples.theatre import Create, Theatre
from tests.examples.looking import PROFILES, attempts_of, delivery_of, since_noon, starts_of, status_of, story_in

A_DAY = 86_400
NO_BUYER = {"number": "R-8", "amount": 80}


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def create(story: Story) -> Create:
    """The program, with circuits: it has none of its own accord."""
    return partial(program.create, story.integrations, circuits=True)


async def test_the_story_is_told_as_its_page_shows_it(stage: Theatre, story: Story, told: list[str]) -> None:
    await story(stage)
    assert "\n".join(told) == story_in(PROFILES / "integrations.md")


async def send(stage: Theatre, event_type: str, payload: object = INVOICE) -> UUID:
    return (await stage.api.send(event_type, payload)).event_id


async def crm_is_down(stage: Theatre) -> UUID:
    """A customer event for a CRM that answers 503."""
    stage.receiver.behaves(status(503))
    await stage.api.endpoints.create(**crm(stage.receiver.url("/crm")))
    event_id = await send(stage, "customer.changed", {"customer": 1})
    await stage.pass_time()
    return event_id


async def queue(stage: Theatre, **filters: object) -> list[QueuedDelivery]:
    return list(await stage.api.retry_queue.page(**filters))  # type: ignore[arg-type]


async def letters(stage: Theatre, **filters: object) -> list[DeadLetter]:
    return list(await stage.api.dead_letters.page(**filters))  # type: ignore[typeddict-item]


async def refused_invoice(stage: Theatre) -> DeadLetter:
    await send(stage, "invoice.issued", NO_BUYER)
    await stage.pass_time()
    (letter,) = await letters(stage)
    return letter


# -- R1 and R2: three policies -----------------------------------------------------------------------------------------


async def test_r1_1_each_kind_of_endpoint_takes_an_event_from_received_to_delivered(
    stage: Theatre, story: Story
) -> None:
    await stage.api.endpoints.create(**crm(stage.receiver.url("/crm")))
    sent = [await send(stage, kind) for kind in ("customer.changed", "invoice.issued", "stock.counted")]
    assert [await status_of(stage, event_id) for event_id in sent] == ["received"] * 3
    await stage.pass_time()
    assert [await status_of(stage, event_id) for event_id in sent] == ["delivered"] * 3
    assert story.partner.messages == ["BGM+380+R-7'NAD+BY+ACME'MOA+77:120'"]
    assert story.erp.documents == [INVOICE]


async def test_r2_2_exponential_retries_after_5_30_and_300_seconds(stage: Theatre) -> None:
    event_id = await crm_is_down(stage)
    await stage.pass_time(A_DAY)
    assert await starts_of(stage, event_id) == [0, 5, 35, 335]
    assert await status_of(stage, event_id) == "failed"


async def test_r2_2_immediate_retries_three_times_every_five_seconds(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 100
    event_id = await send(stage, "invoice.issued")
    await stage.pass_time(A_DAY)
    assert await starts_of(stage, event_id) == [0, 5, 10, 15]


async def test_r2_2_manual_is_never_retried_by_the_machine(stage: Theatre, story: Story) -> None:
    story.erp.error = ErpError("SY-530", "Logon not possible")
    event_id = await send(stage, "stock.counted")
    await stage.pass_time(A_DAY)
    assert await starts_of(stage, event_id) == [0]
    (waiting,) = await stage.api.retry_queue.page()
    assert (waiting.event_id, waiting.next_retry_at) == (event_id, None)
    await stage.api.retry_queue.skip(waiting.delivery_id)
    assert [letter.event_id for letter in await letters(stage)] == [event_id]


# -- R3: errors --------------------------------------------------------------------------------------------------------


async def test_r3_4_a_handler_says_transient_and_is_tried_again(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 2
    event_id = await send(stage, "invoice.issued")
    await stage.pass_time(10)
    rows = [(row.error_category, row.error_code, row.error_reason) for row in await attempts_of(stage, event_id)]
    assert rows == [("transient", "CONNECTION", "The partner's line is busy.")] * 2 + [(None, None, "")]


async def test_r3_4_a_handler_says_permanent_and_is_not_tried_again(stage: Theatre) -> None:
    letter = await refused_invoice(stage)
    await stage.pass_time(A_DAY)
    assert (letter.error, letter.error_reason) == ("INVALID_FORMAT", "The invoice names no buyer.")
    assert len(await attempts_of(stage, letter.event_id)) == 1


async def test_r3_4_any_other_exception_is_transient_and_its_traceback_is_kept(stage: Theatre) -> None:
    event_id = await send(stage, "invoice.issued", {"buyer": "ACME"})
    await stage.pass_time()
    (row,) = await attempts_of(stage, event_id)
    assert (row.error_category, row.error_code) == ("transient", "HANDLER_ERROR")
    assert "KeyError" in row.error_detail
    assert "edi_message" in row.error_detail


@pytest.mark.parametrize(
    ("said", "code", "category"),
    [
        ("M7-021", "INVALID_FORMAT", "permanent"),
        ("SY-530", "SERVICE_UNAVAILABLE", "transient"),
        ("V1-384", "V1-384", "transient"),
    ],
)
async def test_r3_4_the_erps_own_codes_are_translated(
    stage: Theatre, story: Story, said: str, code: str, category: str
) -> None:
    story.erp.error = ErpError(said, "in the ERP's own words")
    event_id = await send(stage, "stock.counted")
    await stage.pass_time()
    (row,) = await attempts_of(stage, event_id)
    assert (row.error_code, row.error_category, row.error_reason) == (code, category, "in the ERP's own words")


async def test_r3_5_the_sentence_is_apart_from_the_traceback_and_neither_holds_the_payload(
    stage: Theatre, story: Story
) -> None:
    story.partner.busy_for = 1
    event_id = await send(stage, "invoice.issued", {"number": "R-9", "amount": 1, "buyer": "the secret buyer"})
    await stage.pass_time()
    (row,) = await attempts_of(stage, event_id)
    assert row.error_reason == "The partner's line is busy."
    assert "Traceback" in row.error_detail
    assert "the secret buyer" not in row.error_reason + row.error_detail


# -- R4: the integration log -------------------------------------------------------------------------------------------


async def test_r4_1_what_a_handler_returns_is_in_the_log(stage: Theatre) -> None:
    event_id = await send(stage, "invoice.issued")
    await stage.pass_time()
    (row,) = await attempts_of(stage, event_id)
    assert "receipt 1" in row.response_body


async def test_r4_2_the_log_survives_the_deletion_of_its_dead_letter(stage: Theatre) -> None:
    letter = await refused_invoice(stage)
    await stage.api.dead_letters.delete(letter.delivery_id)
    assert await letters(stage) == []
    assert len(await stage.api.deliveries.attempts(letter.delivery_id)) == 1


async def test_r4_3_a_delivery_says_on_which_retry_it_succeeded(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 2
    event_id = await send(stage, "invoice.issued")
    await stage.pass_time(10)
    assert (await delivery_of(stage, event_id)).remark == "Succeeded on retry attempt 2"


# -- R6: the circuit ---------------------------------------------------------------------------------------------------


async def test_r6_1_handlers_have_circuits_too(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 100
    for _ in range(5):
        await send(stage, "invoice.issued")
    await stage.pass_time()
    (edi,) = [endpoint for endpoint in await stage.api.endpoints.page() if endpoint.name == "edi"]
    assert (await stage.api.endpoints.circuit(edi.endpoint_id)).state == "open"
    story.partner.busy_for = 0
    await stage.pass_time(600)
    assert len(story.partner.messages) == 5


# -- R7: the retry queue -----------------------------------------------------------------------------------------------


async def test_r7_1_the_queue_says_type_system_error_count_and_next_retry(stage: Theatre) -> None:
    event_id = await crm_is_down(stage)
    await stage.pass_time(5)
    (one,) = await queue(stage)
    assert (one.event_id, one.event_type, one.endpoint_name) == (event_id, "customer.changed", "crm")
    assert (one.error, one.retry_count, since_noon(one.next_retry_at)) == ("SERVICE_UNAVAILABLE", "1 / 3", 35)


async def test_r7_1_the_next_retry_comes_first_and_filters_hold(stage: Theatre, story: Story) -> None:
    await crm_is_down(stage)
    await stage.pass_time(5)
    story.partner.busy_for = 100
    await send(stage, "invoice.issued")
    await stage.pass_time()
    assert [one.endpoint_name for one in await queue(stage)] == ["edi", "crm"]
    assert [one.endpoint_name for one in await queue(stage, event_type="customer.*")] == ["crm"]
    edi, older = (await queue(stage))[0], await queue(stage, older_than_seconds=3)
    assert [one.endpoint_name for one in await queue(stage, endpoint_id=edi.endpoint_id)] == ["edi"]
    assert [one.endpoint_name for one in older] == ["crm"]
    assert await queue(stage, status="in_progress") == []


async def test_r7_2_retry_now_succeeds_and_leaves_the_queue(stage: Theatre) -> None:
    event_id = await crm_is_down(stage)
    stage.receiver.behaves(ok)
    (waiting,) = await queue(stage)
    await stage.api.retry_queue.retry(waiting.delivery_id)
    await stage.pass_time()
    assert (await queue(stage), await status_of(stage, event_id)) == ([], "delivered")


async def test_r7_2_retry_now_fails_counts_and_computes_the_next_time_anew(stage: Theatre) -> None:
    await crm_is_down(stage)
    stage.clock.advance(2)
    (waiting,) = await queue(stage)
    await stage.api.retry_queue.retry(waiting.delivery_id)
    await stage.pass_time()
    (again,) = await queue(stage)
    assert (again.retry_count, since_noon(again.next_retry_at)) == ("1 / 3", 2 + 30)


async def test_r7_1_skip_moves_it_to_the_dead_letters(stage: Theatre) -> None:
    await crm_is_down(stage)
    (waiting,) = await queue(stage)
    await stage.api.retry_queue.skip(waiting.delivery_id)
    assert await queue(stage) == []
    (letter,) = await letters(stage)
    assert (letter.delivery_id, letter.error, letter.error_reason) == (
        waiting.delivery_id, waiting.error, waiting.error_reason
    )  # fmt: skip


async def test_r7_3_a_selection_is_previewed_and_retried_in_bulk_with_progress(stage: Theatre) -> None:
    for _ in range(4):
        await crm_is_down(stage) if not await queue(stage) else await send(stage, "customer.changed")
        await stage.pass_time()
    selection = Selection.where(event_type="customer.*")
    preview = await stage.api.retry_queue.preview(selection)
    assert (preview.count, [(one.endpoint_name, one.count) for one in preview.endpoints]) == (4, [("crm", 4)])
    stage.receiver.behaves(ok)
    bulk = await stage.api.retry_queue.bulk_retry(selection)
    await stage.pass_time(4)
    done = await stage.api.bulk.read(bulk.bulk_id)
    assert (done.state, done.progress) == ("finished", "4/4 succeeded, 0 failed")


async def test_r7_5_what_is_delivered_cannot_be_retried_and_says_so(stage: Theatre) -> None:
    event_id = await send(stage, "invoice.issued")
    await stage.pass_time()
    delivery = await delivery_of(stage, event_id)
    for refused in (stage.api.retry_queue.retry, stage.api.dead_letters.retry):
        with pytest.raises(Conflict, match="delivered"):
            await refused(delivery.delivery_id)


# -- R7: dead letters --------------------------------------------------------------------------------------------------


async def test_r7_4_a_dead_letter_says_type_system_error_count_and_since_when(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 4
    await send(stage, "invoice.issued")
    await stage.pass_time(15)
    (letter,) = await letters(stage)
    assert (letter.event_type, letter.endpoint_name, letter.error) == ("invoice.issued", "edi", "CONNECTION")
    assert (letter.retry_count, since_noon(letter.first_failed_at)) == ("3 / 3", 0)


async def test_r7_4_newest_first_and_filtered_by_type_system_cause_and_date(stage: Theatre, story: Story) -> None:
    edi = await refused_invoice(stage)
    stage.clock.advance(3_600)
    story.erp.error = ErpError("M7-021", "Deficit of stock")
    await send(stage, "stock.counted")
    await stage.pass_time()
    assert [letter.endpoint_name for letter in await letters(stage)] == ["erp", "edi"]
    half_an_hour_ago = to_datetime(stage.clock.now()) - timedelta(minutes=30)
    for filters in (
        {"event_type": "invoice.*"},
        {"endpoint_id": edi.endpoint_id},
        {"cause": edi.cause},
        {"died_before": half_an_hour_ago},
    ):
        assert [letter.endpoint_name for letter in await letters(stage, **filters)] == ["edi"], filters
    assert [letter.endpoint_name for letter in await letters(stage, died_from=half_an_hour_ago)] == ["erp"]


async def test_r7_4_many_dead_letters_read_as_few_causes(stage: Theatre, story: Story) -> None:
    story.erp.error = ErpError("M7-021", "Deficit of stock")
    for number in range(6):
        await send(stage, "stock.counted")
        await send(stage, "invoice.issued", NO_BUYER | {"number": number})
    await stage.pass_time()
    groups = [(group.endpoint_name, group.error_reason, group.count) for group in await stage.api.dead_letters.groups()]
    assert sorted(groups) == [("edi", "The invoice names no buyer.", 6), ("erp", "Deficit of stock", 6)]


async def test_r7_4_a_payload_is_edited_and_retried_and_the_event_stays_as_it_was(stage: Theatre, story: Story) -> None:
    letter = await refused_invoice(stage)
    await stage.api.dead_letters.edit_and_retry(letter.delivery_id, NO_BUYER | {"buyer": "ACME"})
    await stage.pass_time(4)
    assert story.partner.messages == []
    await stage.pass_time(1)
    assert story.partner.messages == ["BGM+380+R-8'NAD+BY+ACME'MOA+77:80'"]
    delivery = await stage.api.deliveries.read(letter.delivery_id)
    assert (delivery.state, delivery.edited) == ("delivered", True)
    assert (await stage.api.events.read(letter.event_id)).payload == NO_BUYER


async def test_r7_4_a_retry_that_fails_returns_to_the_retry_queue(stage: Theatre, story: Story) -> None:
    story.partner.busy_for = 5
    await send(stage, "invoice.issued")
    await stage.pass_time(15)
    (letter,) = await letters(stage)
    await stage.api.dead_letters.retry(letter.delivery_id)
    await stage.pass_time(5)
    (again,) = await queue(stage)
    assert (again.delivery_id, again.retry_count, await letters(stage)) == (letter.delivery_id, "0 / 3", [])
    await stage.pass_time(300)
    assert len(story.partner.messages) == 1, (
        "a while later: that was the fifth failure in a row, and opened the circuit"
    )


async def test_r7_4_resolved_needs_no_delivery_and_its_event_is_delivered(stage: Theatre) -> None:
    letter = await refused_invoice(stage)
    await stage.api.dead_letters.resolve(letter.delivery_id, reason="sent by fax")
    assert (await stage.api.deliveries.read(letter.delivery_id)).state == "resolved"
    assert (await letters(stage), await status_of(stage, letter.event_id)) == ([], "delivered")
    with pytest.raises(Conflict):
        await stage.api.dead_letters.retry(letter.delivery_id)


async def test_r7_6_a_viewer_looks_an_operator_acts_and_every_act_is_audited(stage: Theatre) -> None:
    letter = await refused_invoice(stage)
    async with await stage.client("viewer") as viewer, await stage.client("operator") as operator:
        assert [one.delivery_id for one in await viewer.dead_letters.page()] == [letter.delivery_id]
        with pytest.raises(Forbidden):
            await viewer.dead_letters.resolve(letter.delivery_id)
        await operator.dead_letters.resolve(letter.delivery_id, reason="sent by fax")
    line = next(line for line in await stage.api.audit.page() if line.action == "resolve")
    assert (line.reason, line.subjects, line.result) == ("sent by fax", (str(letter.delivery_id),), "1 done, 0 refused")
