"""R4: the attempt log."""

from __future__ import annotations

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND
from doorstep.errors import NotFound
from doorstep.model.action import ActionKind
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.telemetry.facts import Notice
from doorstep.transports.handler_replies import Received
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until

_S = DeliveryState
WEEK_SECONDS = 7 * DAY // SECOND
BODY_CAP_BYTES = 16_384


# -- R4.1 --------------------------------------------------------------------------------------------------


async def test_the_row_of_an_attempt_says_all_there_is_to_say_about_it(scene: Scene) -> None:
    scene.receiver.answer = lambda _: Answer(503, ("x-request-id: abc",), b"come back later")
    scene.receiver.pause_seconds = 0.02
    endpoint = await scene.endpoint(headers={"x-tenant": "not for the log"})
    before = scene.clock.now()
    (delivery,) = await scene.send_to(endpoint)
    seen = await scene.until_tried(delivery)
    (row,) = await scene.attempts(delivery)
    assert (row.delivery_id, row.number, row.late) == (delivery.delivery_id, 1, False)
    assert before <= row.started_at < row.finished_at <= scene.clock.now()
    assert (row.response_code, row.response_body) == (503, b"come back later")
    assert b"x-request-id: abc" in row.response_headers
    assert (row.category, row.code) == ("transient", "SERVICE_UNAVAILABLE")
    assert row.reason == "The receiver could not handle the request (503 Service Unavailable)."
    assert row.next_retry_at == seen.next_retry_at is not None
    assert row.worker != ""


async def test_the_time_of_an_attempt_is_kept_with_its_parts(scene: Scene) -> None:
    scene.receiver.pause_seconds = 0.02
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_tried(delivery)
    (row,) = await scene.attempts(delivery)
    parts = row.timings
    assert (parts.dns, parts.tls) == (0, 0), "an address needs no lookup, plain http no handshake"
    assert 0 < parts.connect < parts.first_byte
    assert 20_000 <= parts.first_byte <= row.finished_at - row.started_at + 1_000


async def test_the_request_is_in_the_log_as_it_was_sent_with_secret_values_masked(scene: Scene) -> None:
    endpoint = await scene.endpoint(headers={"x-tenant": "not for the log"})
    (delivery,) = await scene.send_to(endpoint)
    await scene.until_tried(delivery)
    (row,) = await scene.attempts(delivery)
    (request,) = scene.receiver.requests
    logged = dict(line.split(": ", 1) for line in row.request_headers.decode().splitlines())
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature", "content-type", "user-agent"):
        assert logged[name] == request.headers[name]
    assert (request.headers["x-tenant"], logged["x-tenant"]) == ("not for the log", "***")
    event = await scene.doorstep.components.reader.event(DEFAULT_ORG, delivery.event_id)
    assert request.body == event.event.payload, "the body that the row refers to is the event's payload"


async def test_the_body_of_an_answer_is_kept_up_to_a_cap(scene: Scene) -> None:
    scene.receiver.answer = lambda _: Answer(200, body=b"x" * 3 * BODY_CAP_BYTES)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_tried(delivery)
    (row,) = await scene.attempts(delivery)
    assert row.response_body == b"x" * BODY_CAP_BYTES


async def test_every_attempt_has_one_row_the_successful_one_too(scene: Scene) -> None:
    scene.receiver.says(500, 429, 200)
    (delivery,) = await scene.send_to(await scene.endpoint(policy=[0.0, 0.0]))
    await scene.until_state(delivery, _S.DELIVERED)
    rows = await scene.attempts(delivery)
    assert [(row.number, row.response_code, row.code) for row in rows] == [
        (1, 500, "SERVICE_UNAVAILABLE"),
        (2, 429, "RATE_LIMIT"),
        (3, 200, None),
    ]
    assert rows[-1].next_retry_at is None


async def test_the_attempts_of_a_handler_are_in_the_log_with_what_it_returned(scene: Scene) -> None:
    def answer(received: Received) -> dict[str, int]:
        return {"taken": received.attempt}

    scene.doorstep.register("answer", answer)
    (delivery,) = await scene.send_to(await scene.endpoint(handler="answer"))
    await scene.until_state(delivery, _S.DELIVERED)
    (row,) = await scene.attempts(delivery)
    assert (row.number, row.response_code, row.response_body, row.category) == (1, None, b'{"taken":1}', None)


# -- R4.2, R4.3 --------------------------------------------------------------------------------------------


async def test_the_log_survives_the_deletion_of_a_dead_letter(scene: Scene) -> None:
    scene.receiver.says(404)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DEAD)
    rows = await scene.attempts(delivery)
    await scene.act(ActionKind.DELETE, delivery)
    assert (await scene.delivery(delivery)).deleted
    assert await scene.attempts(delivery) == rows != []


async def test_a_delivery_that_succeeded_on_a_retry_says_on_which_and_shows_the_last_response(scene: Scene) -> None:
    scene.receiver.says(503, 500, 202)
    (delivery,) = await scene.send_to(await scene.endpoint(policy=[0.0, 0.0, 0.0]))
    done = await scene.until_state(delivery, _S.DELIVERED)
    assert done.remark == "Succeeded on retry attempt 2"
    assert (done.response_code, done.code, done.reason) == (202, None, None)


async def test_a_delivery_that_succeeded_at_once_says_nothing_of_retries(scene: Scene) -> None:
    (delivery,) = await scene.send_to(await scene.endpoint())
    assert (await scene.until_state(delivery, _S.DELIVERED)).remark is None


# -- R4.4 --------------------------------------------------------------------------------------------------


async def test_delivered_deliveries_and_their_attempts_are_removed_after_seven_days_and_not_before(
    scene: Scene,
) -> None:
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DELIVERED)
    await _days_later(scene, 6.9)
    assert len(await scene.attempts(delivery)) == 1
    await _days_later(scene, 0.2)
    await until(lambda: _is_gone(scene, delivery), "its removal")
    (cleaned,) = [_removed(fact) for fact in scene.heard(Notice) if fact.message == "cleaned"]
    assert cleaned == (1, 1)


async def test_how_long_things_are_kept_is_a_setting(scene: Scene) -> None:
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DELIVERED)
    await _days_later(scene, 2, retention_days=3.0)
    assert not await _is_gone(scene, delivery)
    await _days_later(scene, 2, retention_days=3.0)
    await until(lambda: _is_gone(scene, delivery), "its removal")


async def test_cleaning_goes_in_small_batches_and_logs_how_many_it_removed(scene: Scene) -> None:
    scene.doorstep.register("take", lambda _: None)
    await scene.endpoint(handler="take")
    await scene.doorstep.send_many([("order.paid", {})] * 700)
    await until(lambda: _count_is(scene, _S.DELIVERED, 700), "700 deliveries")
    await _days_later(scene, 7.1)
    await until(lambda: _count_is(scene, _S.DELIVERED, 0), "an empty table")
    counts = [_removed(fact) for fact in scene.heard(Notice) if fact.message == "cleaned"]
    assert sum(deliveries for deliveries, _ in counts) == sum(attempts for _, attempts in counts) == 700
    assert max(deliveries for deliveries, _ in counts) <= 500


async def test_dead_letters_are_kept_and_become_archived_when_nobody_touched_them_for_a_week(scene: Scene) -> None:
    scene.receiver.says(404)
    (delivery,) = await scene.send_to(await scene.endpoint())
    dead = await scene.until_state(delivery, _S.DEAD)
    await _days_later(scene, 7.1)
    await scene.until_stored(delivery, _S.ARCHIVED)
    archived = await scene.delivery(delivery)
    assert (archived.code, archived.settled_at) == (dead.code, dead.settled_at)
    await _days_later(scene, 400)
    assert len(await scene.attempts(delivery)) == 1


async def test_dead_letters_are_removed_only_if_and_when_the_setting_says_so_and_are_counted(scene: Scene) -> None:
    scene.receiver.says(404)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DEAD)
    await _days_later(scene, 29.9, dead_retention_days=30.0)
    await scene.until_stored(delivery, _S.ARCHIVED)
    await _days_later(scene, 0.2, dead_retention_days=30.0)
    await until(lambda: _is_gone(scene, delivery), "its removal")
    cleaned = [fact.fields for fact in scene.heard(Notice) if fact.message == "cleaned"]
    assert [(one["dead_letters"], one["attempts"]) for one in cleaned if one["dead_letters"]] == [(1, 1)]


async def test_an_untouched_dead_letter_is_shown_as_archived_even_if_the_cleaner_has_not_come_by(scene: Scene) -> None:
    scene.receiver.says(404)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DEAD)
    scene.leap(WEEK_SECONDS - 1)
    assert (await scene.delivery(delivery)).state is _S.DEAD
    scene.leap(1)
    assert (await scene.delivery(delivery)).state is _S.ARCHIVED
    (shown,) = await scene.doorstep.components.reader.deliveries(DEFAULT_ORG, delivery.event_id)
    assert shown.state is _S.ARCHIVED
    stored = await scene.doorstep.components.store.get(Delivery, DEFAULT_ORG, delivery.delivery_id)
    assert stored.state is _S.DEAD, "the cleaner has not come by"


async def test_an_archived_dead_letter_can_still_be_retried(scene: Scene) -> None:
    scene.receiver.says(404, 200)
    (delivery,) = await scene.send_to(await scene.endpoint())
    await scene.until_state(delivery, _S.DEAD)
    await _days_later(scene, 7.1)
    await scene.until_stored(delivery, _S.ARCHIVED)
    await scene.act(ActionKind.RETRY, delivery)
    scene.leap(5)
    await scene.until_state(delivery, _S.DELIVERED)


# -- helpers -----------------------------------------------------------------------------------------------


async def _days_later(scene: Scene, days: float, **settings: object) -> None:
    """Restart some days later; the cleaner runs at startup."""
    await scene.close()
    scene.leap(days * DAY / SECOND)
    await scene.open(**settings)
    await scene.nothing_more_arrives(0.2)


async def _is_gone(scene: Scene, delivery: Delivery) -> bool:
    try:
        await scene.delivery(delivery)
    except NotFound:
        return True
    return False


async def _count_is(scene: Scene, state: DeliveryState, count: int) -> bool:
    return await scene.count(state) == count


def _removed(notice: Notice) -> tuple[int, int]:
    return int(str(notice.fields["deliveries"])), int(str(notice.fields["attempts"]))
