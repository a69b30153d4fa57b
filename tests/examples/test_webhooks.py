"""The acceptance criteria of the webhooks profile, tested on its example."""

from __future__ import annotations

from uuid import UUID

import pytest

import examples.webhooks.program as profile
from doorstep.client import Conflict, NotFound, Selection
from doorstep.receiver import SignatureWrong, Webhook
from doorstep.schemas.endpoints import NewEndpoint
from doorstep.testing import ok, reset, scripted, status
from examples.theatre import NOON, Create, Theatre
from examples.webhooks.endpoints import subscription
from examples.webhooks.story import story
from tests.examples.looking import PROFILES, attempts_of, delivery_of, since_noon, starts_of, status_of, story_in

SCHEDULE = [0, 60, 360, 1_260]
FIVE_MINUTES = 300
A_DAY = 86_400
A_WEEK = 7 * A_DAY


@pytest.fixture
def create() -> Create:
    return profile.create


async def test_the_story_is_told_as_its_page_shows_it(stage: Theatre, told: list[str]) -> None:
    await story(stage)
    assert "\n".join(told) == story_in(PROFILES / "webhooks.md")


async def subscribe(stage: Theatre, *event_types: str, path: str = "/hook") -> NewEndpoint:
    types = event_types or ("order.*",)
    return await stage.api.endpoints.create(**subscription(path, stage.receiver.url(path), *types))


async def send(stage: Theatre, event_type: str = "order.paid") -> UUID:
    return (await stage.api.send(event_type, {"order": 42})).event_id


def paths(stage: Theatre) -> list[str]:
    return sorted(request.path for request in stage.receiver.requests)


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def test_each_subscriber_gets_the_events_it_subscribed_to_and_no_others(stage: Theatre) -> None:
    await subscribe(stage, "order.*", path="/all")
    await subscribe(stage, "order.shipped", "order.returned", path="/some")
    await subscribe(stage, "invoice.*", path="/none")
    for event_type in ("order.paid", "order.shipped", "order.returned"):
        await send(stage, event_type)
    await stage.pass_time()
    assert paths(stage) == ["/all"] * 3 + ["/some"] * 2


async def test_r1_1_an_event_is_delivered_only_when_every_subscriber_has_it(stage: Theatre) -> None:
    await subscribe(stage, path="/quick")
    await subscribe(stage, path="/late")
    stage.receiver.behaves(scripted([503, 200]), at="/late")
    event_id = await send(stage)
    await stage.pass_time()
    assert await status_of(stage, event_id) == "queued"
    await stage.pass_time(60)
    assert await status_of(stage, event_id) == "delivered"


async def test_r1_1_an_event_is_failed_when_one_subscriber_could_not_be_reached(stage: Theatre) -> None:
    await subscribe(stage, path="/well")
    await subscribe(stage, path="/broken")
    stage.receiver.behaves(status(500), at="/broken")
    event_id = await send(stage)
    await stage.pass_time(1_260)
    assert await status_of(stage, event_id) == "failed"
    deliveries = (await stage.api.events.read(event_id)).deliveries
    assert sorted(delivery.state for delivery in deliveries) == ["dead", "delivered"]


# -- R8.6: signatures --------------------------------------------------------------------------------------------------


async def test_r8_6_every_attempt_is_signed_and_has_the_same_id(stage: Theatre) -> None:
    stage.receiver.verifies((await subscribe(stage)).secret)
    stage.receiver.behaves(scripted([500, 200]))
    event_id = await send(stage)
    await stage.pass_time(60)
    requests = stage.receiver.requests
    assert [(request.flaw, request.event_id) for request in requests] == [("", str(event_id))] * 2
    assert requests[0].headers["webhook-timestamp"] != requests[1].headers["webhook-timestamp"]
    assert requests[0].json() == {"order": 42}


async def test_r8_6_a_body_that_was_changed_on_its_way_does_not_verify(stage: Theatre) -> None:
    webhook = Webhook((await subscribe(stage)).secret)
    await send(stage)
    await stage.pass_time()
    (request,) = stage.receiver.requests
    webhook.verify(request.headers, request.body, now=NOON / 1_000_000)
    with pytest.raises(SignatureWrong):
        webhook.verify(request.headers, request.body + b" ", now=NOON / 1_000_000)


async def test_r8_6_while_a_secret_is_rotated_the_old_and_the_new_one_verify(stage: Theatre) -> None:
    endpoint = await subscribe(stage)
    rotated = await stage.api.endpoints.rotate_secret(endpoint.endpoint_id)
    for secret in (endpoint.secret, rotated.secret):
        stage.receiver.verifies(secret)
        await send(stage)
        await stage.pass_time()
    assert [request.flaw for request in stage.receiver.requests] == ["", ""]
    stage.clock.advance(A_DAY + 1)
    stage.receiver.verifies(endpoint.secret)
    await send(stage)
    await stage.pass_time()
    assert stage.receiver.requests[-1].flaw


# -- R2 and R3: retries ------------------------------------------------------------------------------------------------


async def test_r2_1_four_attempts_in_all_and_then_a_dead_letter(stage: Theatre) -> None:
    stage.receiver.behaves(status(503))
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(A_DAY)
    assert await starts_of(stage, event_id) == SCHEDULE
    (letter,) = await stage.api.dead_letters.page()
    assert (letter.event_id, letter.retry_count, letter.error) == (event_id, "3 / 3", "SERVICE_UNAVAILABLE")


@pytest.mark.parametrize(("answer", "code"), [(400, "INVALID_FORMAT"), (401, "AUTH_FAILED"), (404, "NOT_FOUND")])
async def test_r3_2_every_failure_is_retried(stage: Theatre, answer: int, code: str) -> None:
    stage.receiver.behaves(status(answer))
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(1_260)
    assert [attempt.error_code for attempt in await attempts_of(stage, event_id)] == [code] * 4
    assert (await starts_of(stage, event_id), await status_of(stage, event_id)) == (SCHEDULE, "failed")


async def test_r3_1_gone_is_retried_too_and_disables_nothing(stage: Theatre) -> None:
    stage.receiver.behaves(scripted([410, 200]))
    endpoint = await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(60)
    assert await status_of(stage, event_id) == "delivered"
    assert (await stage.api.endpoints.read(endpoint.endpoint_id)).state == "active"


async def test_r3_3_a_receiver_may_ask_not_to_be_sent_a_message_again(stage: Theatre) -> None:
    stage.receiver.behaves(status(503, "webhook-delivery: abort-message"))
    endpoint = await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(A_DAY)
    assert [row.error_code for row in await attempts_of(stage, event_id)] == ["ABORTED"]
    assert (await stage.api.endpoints.read(endpoint.endpoint_id)).state == "active"


# -- R4: the attempt log and the cleanup -------------------------------------------------------------------------------


async def test_r4_3_a_delivery_says_on_which_retry_it_succeeded(stage: Theatre) -> None:
    stage.receiver.behaves(scripted([503, 200]))
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(60)
    assert (await delivery_of(stage, event_id)).remark == "Succeeded on retry attempt 1"


async def test_r4_4_delivered_deliveries_and_their_attempts_are_removed_after_seven_days(stage: Theatre) -> None:
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(A_WEEK - 60)
    delivery = await delivery_of(stage, event_id)
    assert len(await stage.api.deliveries.attempts(delivery.delivery_id)) == 1
    await stage.pass_time(120)
    for gone in (stage.api.events.read(event_id), stage.api.deliveries.attempts(delivery.delivery_id)):
        with pytest.raises(NotFound):
            await gone


async def test_r4_4_dead_letters_are_removed_after_seven_days_too(stage: Theatre) -> None:
    stage.receiver.behaves(status(404))
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time(A_DAY)
    assert len(await stage.api.dead_letters.page()) == 1
    await stage.pass_time(A_WEEK)
    assert [len(await stage.api.dead_letters.page(status=status)) for status in ("dead", "archived")] == [0, 0]
    with pytest.raises(NotFound):
        await stage.api.events.status(event_id)


async def test_r4_2_the_log_survives_the_deletion_of_a_dead_letter(stage: Theatre) -> None:
    stage.receiver.behaves(status(404))
    await subscribe(stage)
    await send(stage)
    await stage.pass_time(1_260)
    (letter,) = await stage.api.dead_letters.page()
    await stage.api.dead_letters.delete(letter.delivery_id)
    assert len(await stage.api.dead_letters.page()) == 0
    assert len(await stage.api.deliveries.attempts(letter.delivery_id)) == 4


# -- R6: the circuit breaker -------------------------------------------------------------------------------------------


async def opened(stage: Theatre) -> UUID:
    """A subscription whose circuit is open after five failed events, ten seconds apart."""
    stage.receiver.behaves(status(503))
    endpoint = await subscribe(stage)
    for _ in range(5):
        await send(stage)
        await stage.pass_time()
        stage.clock.advance(10)
    return endpoint.endpoint_id


async def state_of(stage: Theatre, endpoint_id: UUID) -> str:
    return (await stage.api.endpoints.circuit(endpoint_id)).state


async def test_r6_1_the_circuit_opens_with_the_fifth_failure_in_a_row_for_five_minutes(stage: Theatre) -> None:
    stage.receiver.behaves(status(503))
    endpoint = await subscribe(stage)
    for _ in range(4):
        await send(stage)
    await stage.pass_time()
    assert await state_of(stage, endpoint.endpoint_id) == "closed"
    await send(stage)
    await stage.pass_time()
    circuit = await stage.api.endpoints.circuit(endpoint.endpoint_id)
    assert (circuit.state, circuit.failures, since_noon(circuit.until)) == ("open", 5, FIVE_MINUTES)


async def test_r6_1_a_success_resets_the_count(stage: Theatre) -> None:
    stage.receiver.behaves(scripted([503, 503, 503, 503, 200, 503, 503, 503, 503, 200]))
    endpoint = await subscribe(stage)
    for _ in range(10):
        await send(stage)
        await stage.pass_time()
    assert await state_of(stage, endpoint.endpoint_id) == "closed"


async def test_r6_1_while_it_is_open_deliveries_are_held_and_use_up_no_attempts(stage: Theatre) -> None:
    await opened(stage)
    event_id = await send(stage)
    before = len(stage.receiver.requests)
    await stage.pass_time(FIVE_MINUTES - 11)
    delivery = await delivery_of(stage, event_id)
    assert (delivery.state, delivery.attempts, len(stage.receiver.requests) - before) == ("pending", 0, 0)
    assert "circuit is open until" in str(delivery.held)
    assert await status_of(stage, event_id) == "received"


async def test_r6_1_then_one_probe_goes_through_and_its_failure_opens_the_circuit_again(stage: Theatre) -> None:
    endpoint_id = await opened(stage)
    for _ in range(3):
        await send(stage)
    before = len(stage.receiver.requests)
    await stage.pass_time(FIVE_MINUTES)
    circuit = await stage.api.endpoints.circuit(endpoint_id)
    assert (circuit.state, len(stage.receiver.requests) - before) == ("open", 1)
    assert since_noon(circuit.until) == 40 + FIVE_MINUTES + FIVE_MINUTES


async def test_r6_1_a_probe_that_succeeds_closes_the_circuit_and_what_waited_is_delivered(stage: Theatre) -> None:
    endpoint_id = await opened(stage)
    waiting = [await send(stage) for _ in range(3)]
    stage.receiver.behaves(ok)
    await stage.pass_time(FIVE_MINUTES)
    assert await state_of(stage, endpoint_id) == "closed"
    assert {await status_of(stage, event_id) for event_id in waiting} == {"delivered"}


async def test_r6_1_an_operators_retry_goes_through_an_open_circuit_as_its_probe(stage: Theatre) -> None:
    endpoint_id = await opened(stage)
    stage.receiver.behaves(ok)
    first = next(iter(await stage.api.retry_queue.page()))
    await stage.api.retry_queue.retry(first.delivery_id)
    await stage.pass_time()
    assert (await stage.api.deliveries.read(first.delivery_id)).state == "delivered"
    assert await state_of(stage, endpoint_id) == "closed"


async def test_r6_1_a_refused_payload_does_not_count_against_the_receiver(stage: Theatre) -> None:
    stage.receiver.behaves(status(422))
    endpoint = await subscribe(stage)
    for _ in range(8):
        await send(stage)
    await stage.pass_time()
    circuit = await stage.api.endpoints.circuit(endpoint.endpoint_id)
    assert (circuit.state, circuit.failures) == ("closed", 0)


async def test_r6_1_the_state_and_history_of_the_circuit_are_shown(stage: Theatre) -> None:
    endpoint_id = await opened(stage)
    stage.receiver.behaves(ok)
    await stage.pass_time(FIVE_MINUTES)
    history = (await stage.api.endpoints.circuit(endpoint_id)).history
    assert [(since_noon(line.at), line.new_state) for line in history] == [
        (40, "open"),
        (340, "half_open"),
        (340, "closed"),
    ]


async def test_r6_1_a_subscriber_that_is_down_delays_no_other(stage: Theatre) -> None:
    await opened(stage)
    await subscribe(stage, path="/other")
    stage.receiver.behaves(ok, at="/other")
    await send(stage)
    await stage.pass_time()
    assert "/other" in paths(stage)


async def test_r6_2_after_five_days_without_a_success_it_is_disabled_and_its_deliveries_are_held(
    stage: Theatre,
) -> None:
    endpoint = await failing_for_days(stage, 6)
    assert endpoint.state == "disabled"
    assert "5 days" in endpoint.state_reason
    event_id = await send(stage)
    await stage.pass_time(A_DAY)
    delivery = await delivery_of(stage, event_id)
    assert (delivery.state, delivery.attempts) == ("pending", 0)
    assert "disabled" in str(delivery.held)


async def test_r6_2_the_control_after_four_days_it_is_still_tried(stage: Theatre) -> None:
    assert (await failing_for_days(stage, 4)).state == "active"


async def failing_for_days(stage: Theatre, days: int):
    """Send one event a day to a receiver that is always down."""
    stage.receiver.behaves(reset)
    endpoint = await subscribe(stage)
    for _ in range(days):
        await send(stage)
        await stage.pass_time(A_DAY)
    return await stage.api.endpoints.read(endpoint.endpoint_id)


async def test_r6_2_when_it_is_enabled_again_what_waited_is_delivered(stage: Theatre) -> None:
    endpoint_id, held = await disabled_with_two_waiting(stage)
    await stage.api.endpoints.resume(endpoint_id)
    await stage.pass_time()
    assert [await status_of(stage, event_id) for event_id in held] == ["delivered", "delivered"]


async def test_r6_2_or_at_a_rate(stage: Theatre) -> None:
    endpoint_id, held = await disabled_with_two_waiting(stage)
    await stage.api.endpoints.resume(endpoint_id, drain_per_second=0.1)
    await stage.pass_time()
    assert sorted([await status_of(stage, event_id) for event_id in held]) == ["delivered", "received"]
    await stage.pass_time(10)
    assert {await status_of(stage, event_id) for event_id in held} == {"delivered"}


async def test_r6_2_or_without_what_is_too_old(stage: Theatre) -> None:
    endpoint_id, held = await disabled_with_two_waiting(stage)
    newer = (await stage.api.events.read(held[1])).created_at
    await stage.api.endpoints.resume(endpoint_id, skip_older_than=newer)
    await stage.pass_time()
    assert [await status_of(stage, event_id) for event_id in held] == ["failed", "delivered"]
    (letter,) = await stage.api.dead_letters.page()
    assert (letter.event_id, letter.error) == (held[0], "SKIPPED")


async def disabled_with_two_waiting(stage: Theatre) -> tuple[UUID, list[UUID]]:
    stage.receiver.behaves(status(200, "webhook-delivery: disable"))
    endpoint = await subscribe(stage)
    await send(stage)
    await stage.pass_time()
    held = []
    for _ in range(2):
        stage.clock.advance(60)
        held.append(await send(stage))
    stage.receiver.behaves(ok)
    stage.clock.advance(60)
    return endpoint.endpoint_id, held


async def test_r6_3_what_waits_for_a_deleted_subscription_becomes_a_dead_letter_with_the_reason(stage: Theatre) -> None:
    stage.receiver.behaves(status(503))
    endpoint = await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time()
    await stage.api.endpoints.delete(endpoint.endpoint_id)
    (letter,) = await stage.api.dead_letters.page()
    assert (letter.event_id, letter.error) == (event_id, "ENDPOINT_DELETED")
    assert letter.error_reason == "The endpoint was deleted while the delivery was waiting."


# -- R7: operators -----------------------------------------------------------------------------------------------------


async def test_r7_4_dead_letters_of_one_cause_are_retried_together(stage: Theatre) -> None:
    stage.receiver.behaves(status(404))
    await subscribe(stage)
    sent = [await send(stage) for _ in range(5)]
    await stage.pass_time(A_DAY)
    (group,) = await stage.api.dead_letters.groups()
    assert (group.count, group.error_code) == (5, "NOT_FOUND")
    stage.receiver.behaves(ok)
    bulk = await stage.api.dead_letters.bulk_retry(Selection.where(cause=group.cause))
    await stage.pass_time(10)
    done = await stage.api.bulk.read(bulk.bulk_id)
    assert (done.state, done.progress) == ("finished", "5/5 succeeded, 0 failed")
    assert {await status_of(stage, event_id) for event_id in sent} == {"delivered"}


async def test_r7_5_what_is_delivered_cannot_be_retried(stage: Theatre) -> None:
    await subscribe(stage)
    event_id = await send(stage)
    await stage.pass_time()
    with pytest.raises(Conflict):
        await stage.api.dead_letters.retry((await delivery_of(stage, event_id)).delivery_id)
