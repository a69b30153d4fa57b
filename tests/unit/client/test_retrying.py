"""Which requests a client repeats, which it never repeats, and how long it waits between tries."""

from __future__ import annotations

import pytest

from doorstep.client import NotFound, Overloaded, Retrying, Unavailable, Unreachable
from doorstep.client.call import Call, Silence, delete, get, one, patch, post
from doorstep.client.errors import Answer
from doorstep.client.events import Sending
from doorstep.client.verbs import perform
from tests.unit.client.steps import answers, ok, refusal

STEADY = Retrying(tries_max=4, first_pause_seconds=1.0, longest_pause_seconds=30.0, random=lambda: 1.0)
ASK = get(one(int), "/v1/number")
SILENT = Silence("connection refused")


def sending() -> Call[object]:
    described: Call[object] = Sending.send.described(None, "order.paid", {})
    return described


@pytest.mark.parametrize("failure", [SILENT, refusal(429), refusal(502), refusal(503), refusal(504)], ids=str)
def test_a_question_is_asked_again_after_a_passing_failure(failure: Answer | Silence) -> None:
    world = answers(failure, failure, ok(7))
    assert world.run(perform(ASK, STEADY)) == 7
    assert world.pauses == [1.0, 2.0]


def test_a_send_is_repeated_with_the_same_idempotency_key() -> None:
    receipt = {
        "event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "status": "received",
        "verdict": "accepted",
        "created_at": "2026-01-31T12:00:00.000000Z",
        "deliveries": 1,
    }
    world = answers(SILENT, refusal(503), ok(receipt, 202))
    world.run(perform(sending(), STEADY))
    first, *others = world.requests
    assert len(others) == 2
    assert first.content is not None
    assert b'"idempotency_key":"' in first.content
    assert {request.content for request in others} == {first.content}


def test_two_sends_never_share_a_generated_key() -> None:
    assert sending().content != sending().content


@pytest.mark.parametrize(
    "call",
    [post(one(int), "/v1/acts"), patch(one(int), "/v1/things", body={}), delete("/v1/things/{id}", "1")],
    ids=["POST", "PATCH", "DELETE"],
)
@pytest.mark.parametrize("failure", [SILENT, refusal(429), refusal(503)], ids=str)
def test_what_may_not_be_done_twice_is_sent_once(call: Call[object], failure: Answer | Silence) -> None:
    world = answers(failure, ok(7))
    with pytest.raises((Unreachable, Overloaded, Unavailable)):
        world.run(perform(call, STEADY))
    assert len(world.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 501])
def test_an_answer_that_would_be_the_same_again_is_final(status: int) -> None:
    world = answers(refusal(status), ok(7))
    with pytest.raises(Exception, match=f"^{status} A title: a detail$"):
        world.run(perform(ASK, STEADY))
    assert len(world.requests) == 1


def test_the_number_of_tries_is_bounded_and_the_last_failure_is_raised() -> None:
    world = answers(refusal(503), SILENT, SILENT, refusal(429))
    with pytest.raises(Overloaded):
        world.run(perform(ASK, STEADY))
    assert (len(world.requests), world.pauses) == (4, [1.0, 2.0, 4.0])


def test_retry_after_is_honoured_where_it_is_longer_and_never_for_ever() -> None:
    def told(seconds: str) -> Answer:
        return refusal(429, headers=[("retry-after", seconds)])

    world = answers(told("7"), told("1"), told("86400"), ok(7))
    world.run(perform(ASK, STEADY))
    assert world.pauses == [7.0, 2.0, 30.0]


@pytest.mark.parametrize("rubbish", ["soon", "-5", "", "1e400", "²", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_that_is_no_number_is_left_aside(rubbish: str) -> None:
    world = answers(refusal(503, headers=[("retry-after", rubbish)]), ok(7))
    world.run(perform(ASK, STEADY))
    assert world.pauses == [1.0]


def test_pauses_are_spread_over_the_upper_half() -> None:
    assert list(Retrying(tries_max=3, first_pause_seconds=1.0, random=lambda: 0.0).pauses()) == [0.5, 1.0]


def test_refusals_carry_the_fields_of_the_problem() -> None:
    body = {"errors": [{"field": "limit", "message": "must be 1 to 200"}]}
    world = answers(refusal(404, "not_found", headers=[("x-correlation-id", "abc")], **body))
    with pytest.raises(NotFound) as raised:
        world.run(perform(ASK, STEADY))
    error = raised.value
    assert (error.status, error.code, error.title, error.detail) == (404, "not_found", "A title", "a detail")
    assert [(one.field, one.message) for one in error.errors] == [("limit", "must be 1 to 200")]
    assert error.correlation_id == "abc"


@pytest.mark.parametrize("page", [b"<html>bad gateway</html>", b"", b"\xff\xfe", b"[]", b'{"status":"x"}'])
def test_a_refusal_that_is_not_doorsteps_is_still_told_by_its_status(page: bytes) -> None:
    world = answers(Answer(502, {}, page))
    with pytest.raises(Unavailable, match="^502 "):
        world.run(perform(ASK, STEADY))
