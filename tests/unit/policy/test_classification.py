"""How replies are classified: table R3.1, row by row, and how an endpoint can override it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import SECOND
from doorstep.model.attempt import Category, Code, Failure, Outcome, Reply
from doorstep.model.endpoint import Endpoint
from doorstep.policy.classification import MEANINGS, classify, header, lost_worker, retry_after, without_attempt
from tests.support.builders import NOW, a_claim, a_reply, an_endpoint, new_id
from tests.support.matrix import each_case

T, P = Category.TRANSIENT, Category.PERMANENT


def judged(status: int, headers: bytes = b"HTTP/1.1 200\r\n", **endpoint: object) -> Outcome:
    return classify(a_reply(NOW, status=status, headers=headers), an_endpoint(new_id(), **endpoint))


def judged_failure(failure: Failure, **endpoint: object) -> Outcome:
    return classify(Reply(started_at=NOW, finished_at=NOW, failure=failure), an_endpoint(new_id(), **endpoint))


@each_case("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_a_delivery(status: int) -> None:
    assert judged(status).succeeded


def test_a_handler_that_returns_has_delivered() -> None:
    assert classify(Reply(started_at=NOW, finished_at=NOW), an_endpoint(new_id())).succeeded


@each_case(
    ("status", "category", "code"),
    [
        (408, T, Code.REQUEST_TIMEOUT),
        (425, T, Code.TOO_EARLY),
        (429, T, Code.RATE_LIMIT),
        (500, T, Code.SERVICE_UNAVAILABLE),
        (501, T, Code.SERVICE_UNAVAILABLE),
        (502, T, Code.SERVICE_UNAVAILABLE),
        (503, T, Code.SERVICE_UNAVAILABLE),
        (504, T, Code.SERVICE_UNAVAILABLE),
        (599, T, Code.SERVICE_UNAVAILABLE),
        (401, P, Code.AUTH_FAILED),
        (403, P, Code.AUTH_FAILED),
        (404, P, Code.NOT_FOUND),
        (410, P, Code.GONE),
        (400, P, Code.INVALID_FORMAT),
        (422, P, Code.INVALID_FORMAT),
        (301, P, Code.REDIRECT),
        (302, P, Code.REDIRECT),
        (307, P, Code.REDIRECT),
        (308, P, Code.REDIRECT),
        (402, P, Code.REJECTED),
        (405, P, Code.REJECTED),
        (418, P, Code.REJECTED),
        (451, P, Code.REJECTED),
        (101, T, Code.BAD_RESPONSE),
        (600, T, Code.BAD_RESPONSE),
        (999, T, Code.BAD_RESPONSE),
    ],
)
def test_every_status_has_its_category_and_code(status: int, category: Category, code: str) -> None:
    outcome = judged(status)
    assert (outcome.category, outcome.code) == (category, code)
    assert str(status) in outcome.reason


@each_case(
    ("status", "body"),
    [
        (400, b'{"error": "Message timestamp too old"}'),
        (401, b"message timestamp too new"),
        (403, b"webhook-timestamp is 601 s ago; up to 300 s are tolerated"),
        (401, b"Timestamp outside the tolerance zone (1614265330)"),
    ],
)
def test_a_refused_timestamp_is_told_apart_from_a_wrong_signature_and_is_tried_again(status: int, body: bytes) -> None:
    outcome = classify(a_reply(NOW, status=status, body=body), an_endpoint(new_id()))
    assert (outcome.category, outcome.code) == (T, Code.TIMESTAMP_REFUSED)
    assert "clock" in outcome.reason


@each_case(
    ("status", "body", "code"),
    [
        (401, b"No matching signature found", Code.AUTH_FAILED),
        (401, b"timestamp\nis missing; the client is too old", Code.AUTH_FAILED),
        (422, b"timestamp too old", Code.INVALID_FORMAT),
        (400, b"timestamp: not a number", Code.INVALID_FORMAT),
    ],
)
def test_other_refusals_are_no_refused_timestamp(status: int, body: bytes, code: str) -> None:
    outcome = classify(a_reply(NOW, status=status, body=body), an_endpoint(new_id()))
    assert (outcome.category, outcome.code) == (P, code)


@each_case(
    ("code", "category"),
    [
        (Code.TIMEOUT, T),
        (Code.CONNECTION, T),
        (Code.DNS, T),
        (Code.RATE_LIMIT, T),
        (Code.SERVICE_UNAVAILABLE, T),
        (Code.HANDLER_ERROR, T),
        (Code.NO_HANDLER, T),
        (Code.NO_PLACE, T),
        (Code.TLS, P),
        (Code.BLOCKED, P),
        (Code.AUTH_FAILED, P),
        (Code.INVALID_FORMAT, P),
        (Code.BATCH_REJECTED, P),
        ("A_CODE_NOBODY_KNOWS", T),
    ],
)
def test_every_code_without_an_answer_has_its_category(code: str, category: Category) -> None:
    outcome = judged_failure(Failure(code, "what happened", detail="the client's words"))
    assert (outcome.category, outcome.code) == (category, code)
    assert (outcome.reason, outcome.detail) == ("what happened", "the client's words")


def test_every_code_but_that_of_an_operators_skip_has_a_built_in_category() -> None:
    codes = {value for name, value in vars(Code).items() if not name.startswith("_")}
    assert codes - set(MEANINGS) == {Code.SKIPPED}


# -- what counts for the circuit ---------------------------------------------------------------------------


@each_case("status", [400, 422])
def test_failures_that_blame_the_payload_do_not_blame_the_endpoint(status: int) -> None:
    assert not judged(status).blames_endpoint


@each_case("status", [401, 404, 408, 429, 500, 302])
def test_other_failures_blame_the_endpoint(status: int) -> None:
    assert judged(status).blames_endpoint


@each_case("code", [Code.TIMEOUT, Code.CONNECTION, Code.DNS, Code.TLS, Code.HANDLER_ERROR])
def test_a_receiver_that_cannot_be_reached_is_to_blame(code: str) -> None:
    assert judged_failure(Failure(code, "")).blames_endpoint


@each_case("code", [Code.BATCH_REJECTED, Code.NO_HANDLER, Code.NO_PLACE])
def test_our_own_faults_do_not_blame_the_endpoint(code: str) -> None:
    assert not judged_failure(Failure(code, "")).blames_endpoint


def test_neither_a_lost_worker_nor_an_untried_claim_blames_the_endpoint() -> None:
    assert not lost_worker(a_claim(), NOW).blames_endpoint
    assert not without_attempt(a_claim(), Code.EXPIRED, "too late", NOW).blames_endpoint
    assert without_attempt(a_claim(), Code.EXPIRED, "too late", NOW).category is P


# -- overrides by an endpoint ------------------------------------------------------------------------------


@each_case("name", ["NOT_FOUND", "404", "4xx", "*"])
def test_retry_on_makes_a_permanent_failure_worth_another_try(name: str) -> None:
    assert judged(404, retry_on=(name,)).category is T


@each_case("name", ["SERVICE_UNAVAILABLE", "503", "5xx"])
def test_give_up_on_makes_a_transient_failure_permanent(name: str) -> None:
    assert judged(503, give_up_on=(name,)).category is P


def test_a_name_in_give_up_on_beats_the_star_that_retries_everything() -> None:
    assert judged(401, retry_on=("*",), give_up_on=("401",)).category is P
    assert judged(403, retry_on=("*",), give_up_on=("401",)).category is T


def test_wishes_hold_for_failures_without_an_answer_too() -> None:
    assert judged_failure(Failure(Code.TLS, ""), retry_on=("TLS",)).category is T
    assert judged_failure(Failure(Code.TIMEOUT, ""), give_up_on=("TIMEOUT",)).category is P


def test_wishes_do_not_touch_what_they_do_not_name() -> None:
    assert judged(404, retry_on=("401", "5xx")).category is P
    assert judged(500, give_up_on=("501", "4xx")).category is T


def test_wishes_cannot_turn_success_into_failure() -> None:
    assert judged(200, give_up_on=("200", "2xx")).succeeded


# -- handlers and code maps --------------------------------------------------------------------------------


def test_a_handler_decides_the_category_of_its_own_codes() -> None:
    assert judged_failure(Failure("QUOTA", "no more today", P)).category is P
    assert judged_failure(Failure("INVALID_FORMAT", "but try again", T)).category is T


def test_a_code_map_translates_a_carriers_codes_and_their_category() -> None:
    endpoint: dict[str, object] = {"code_map": {"30007": Code.BATCH_REJECTED, "E42": Code.RATE_LIMIT}}
    rejected = judged_failure(Failure("30007", "carrier says no", T), **endpoint)
    limited = judged_failure(Failure("E42", "too fast", P), **endpoint)
    assert (rejected.code, rejected.category) == (Code.BATCH_REJECTED, P)
    assert (limited.code, limited.category) == (Code.RATE_LIMIT, T)


def test_a_code_map_decides_about_a_code_that_keeps_its_name_whatever_exception_carried_it() -> None:
    said_to_be_transient = Failure("AUTH_FAILED", "wrong password", T)
    assert judged_failure(said_to_be_transient).category is T
    assert judged_failure(said_to_be_transient, code_map={"AUTH_FAILED": "AUTH_FAILED"}).category is P
    said_to_be_permanent = Failure("RATE_LIMIT", "too fast", P)
    assert judged_failure(said_to_be_permanent, code_map={"RATE_LIMIT": "RATE_LIMIT"}).category is T
    assert judged_failure(said_to_be_permanent, code_map={"AUTH_FAILED": "AUTH_FAILED"}).category is P


def test_a_code_map_to_an_unknown_code_keeps_what_the_handler_said() -> None:
    outcome = judged_failure(Failure("30008", "", P), code_map={"30008": "CARRIER_VIOLATION"})
    assert (outcome.code, outcome.category) == ("CARRIER_VIOLATION", P)


def test_a_code_map_translates_statuses() -> None:
    outcome = judged(402, code_map={"402": Code.RATE_LIMIT})
    assert (outcome.code, outcome.category) == (Code.RATE_LIMIT, T)


def test_wishes_can_name_the_carriers_code_or_ours() -> None:
    mapped: dict[str, object] = {"code_map": {"30007": Code.BATCH_REJECTED}}
    for name in ("30007", "BATCH_REJECTED"):
        assert judged_failure(Failure("30007", ""), retry_on=(name,), **mapped).category is T


# -- what the receiver asks for ----------------------------------------------------------------------------


def test_only_a_receiver_that_answers_410_disables_its_endpoint() -> None:
    assert judged(410).disable_endpoint
    assert not judged(404).disable_endpoint
    assert not judged(404, code_map={"404": Code.GONE}).disable_endpoint
    assert not judged(410, code_map={"410": Code.SERVICE_UNAVAILABLE}).disable_endpoint


def test_a_handler_that_says_gone_speaks_of_one_event_and_disables_nothing() -> None:
    said = judged_failure(Failure(Code.GONE, "The account was closed.", Category.PERMANENT))
    assert (said.category, said.code, said.disable_endpoint) == (Category.PERMANENT, Code.GONE, False)
    assert not judged_failure(Failure("E-17", ""), code_map={"E-17": Code.GONE}).disable_endpoint


@each_case("status", [200, 404, 500])
def test_webhook_delivery_disable_disables_the_endpoint_whatever_the_status(status: int) -> None:
    assert judged(status, b"HTTP/1.1 x\r\nWebhook-Delivery: Disable\r\n").disable_endpoint


def test_webhook_delivery_abort_message_is_obeyed_whatever_the_endpoint_wishes() -> None:
    outcome = judged(503, b"HTTP/1.1 503\r\nwebhook-delivery: abort-message\r\n", retry_on=("*",))
    assert (outcome.category, outcome.code, outcome.disable_endpoint) == (P, Code.ABORTED, False)
    assert not outcome.blames_endpoint


def test_an_abort_beside_a_success_is_a_success() -> None:
    assert judged(200, b"HTTP/1.1 200\r\nwebhook-delivery: abort-message\r\n").succeeded


def test_retry_after_is_read_from_any_failing_answer() -> None:
    assert judged(503, b"HTTP/1.1 503\r\nRetry-After: 120\r\n").retry_after_seconds == 120
    assert judged_failure(Failure(Code.RATE_LIMIT, "", T, retry_after=30)).retry_after_seconds == 30


@each_case(
    ("value", "expected"),
    [
        (b"0", 0),
        (b"120", 120),
        (b"99999999999999999999", 999_999_999),
        (b"Sun, 15 Jun 2025 15:07:40 GMT", 60),
        (b"Sun, 15 Jun 2025 15:05:40 GMT", -60),
        (b"Sunday, 15-Jun-25 15:07:40 GMT", 60),
        (b"", None),
        (b"-5", None),
        (b"1.5", None),
        (b"soon", None),
        (b"Sun, 15 Jun 2025", None),
        (b"Sun, 99 Jun 2025 15:07:40 GMT", None),
        ("٣".encode(), None),
    ],
)
def test_retry_after_has_two_forms_and_nonsense_is_ignored(value: bytes, expected: float | None) -> None:
    assert NOW == 1_750_000_000 * SECOND, "the dates above are around 2025-06-15 15:06:40"
    assert retry_after(b"HTTP/1.1 429\r\nretry-after: " + value + b"\r\n", NOW) == expected


@given(st.binary(max_size=60))
def test_no_answer_of_a_receiver_makes_classification_fail(noise: bytes) -> None:
    block = b"HTTP/1.1 429\r\nretry-after: " + noise + b"\r\nwebhook-delivery: " + noise + b"\r\n" + noise
    assert classify(a_reply(NOW, status=429, headers=block), _ENDPOINT).category is not None


@given(st.text(st.sampled_from("MonTueJan0123456789:,+- GMT"), max_size=40))
def test_no_almost_date_makes_retry_after_fail(value: str) -> None:
    seen = retry_after(b"\nretry-after: " + value.encode(), NOW)
    assert seen is None or isinstance(seen, float)


def test_headers_are_found_whatever_their_case_and_the_last_one_wins() -> None:
    block = b"HTTP/1.1 100\r\nX-A: first\r\n\r\nHTTP/1.1 200\r\nx-a:  Second \r\nX-Ab: no\r\n"
    assert header(block, b"x-a") == "Second"
    assert header(block, b"x-b") is None
    assert header(b"", b"x-a") is None


_ENDPOINT: Endpoint = an_endpoint(new_id())


@each_case("status", [200, 500])
def test_the_log_says_that_an_answer_was_longer_than_what_is_kept_of_it(status: int) -> None:
    endpoint = an_endpoint(new_id())
    whole, cut = (classify(a_reply(NOW, status=status, body_cut=cut), endpoint) for cut in (False, True))
    assert (whole.detail, cut.detail) == ("", "The response was longer than the part that is kept.")
