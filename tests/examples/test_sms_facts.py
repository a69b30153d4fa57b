"""What the sms profile was asked for, asserted over HTTP on its running server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from examples.counterpart import Answer, running
from examples.sms.carrier import Carrier
from examples.sms.gateway import Gateway
from examples.sms.program import create as create_program
from examples.theatre import Create, Theatre
from tests.examples.served import Served, fact, profile_served
from tests.support.program import wait_for
from tests.support.stores import EITHER_STORE

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
MESSAGES = {"messages": [{"to": "+15550100", "text": "See you at nine."}]}
FIELDS = {
    "batch_id",
    "submission_status",
    "current_retry_attempt",
    "last_error_code",
    "last_error_message",
    "next_retry_at",
}
ATTEMPT_FIELDS = [
    "attempt_number",
    "attempted_at",
    "error_code",
    "error_message",
    "carrier_response",
    "next_retry_at",
]
TRANSIENT = ("TIMEOUT", "RATE_LIMIT", "SERVICE_UNAVAILABLE")
PERMANENT = ("AUTH_FAILED", "INVALID_FORMAT", "BATCH_REJECTED")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def carriers() -> Iterator[Carrier]:
    with running(Carrier) as it:
        yield it


@pytest.fixture
def carrier(carriers: Carrier) -> Iterator[Carrier]:
    """The carrier of the server. It works again after each test."""
    yield carriers
    carriers.answers.clear()


@pytest.fixture(scope="module", params=EITHER_STORE)
def sms(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, carriers: Carrier
) -> Iterator[Served]:
    """The profile with quick retries, without circuits: the failures of one test do not hold up the next."""
    quick = {"RETRY_DELAYS": "0.2,0.2,0.2", "CARRIER_TIMEOUT_SECONDS": "0.5", "DOORSTEP_CIRCUITS": "false"}
    with _served(request, tmp_path_factory, carriers, **quick) as served:
        yield served


def _served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, carrier: Carrier, **environment: str
) -> Any:
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    folder = tmp_path_factory.mktemp("sms")
    return profile_served("sms", request.param, folder, server, CARRIER_URL=f"{carrier.url}/batches", **environment)


@pytest.fixture
def create(carriers: Carrier) -> Create:
    def create_here(**given: Any) -> Any:
        return create_program(Gateway(f"{carriers.url}/batches"), **given)

    return create_here


def refuse(carrier: Carrier, code: str, status: int = 503) -> None:
    carrier.answers["/batches"] = Answer(status, {"code": code})


def submit(served: Served) -> str:
    submitted = served.program.post("/batches", MESSAGES)
    assert submitted.status == 202, submitted.body
    return str(submitted.json["batch_id"])


def read(served: Served, batch_id: str) -> Json:
    return dict(served.program.get(f"/batches/{batch_id}").json)


def attempts(served: Served, batch_id: str) -> list[Json]:
    return list(served.program.get(f"/batches/{batch_id}/attempts").json["attempts"])


def ended(served: Served, batch_id: str, status: str) -> Json:
    """The batch, once it has this status."""
    wait_for(lambda: read(served, batch_id)["submission_status"] == status)
    return read(served, batch_id)


def failed(served: Served, carrier: Carrier, code: str = "BATCH_REJECTED", status: int = 503) -> str:
    refuse(carrier, code, status)
    batch_id = submit(served)
    ended(served, batch_id, "FAILED")
    return batch_id


# -- batches -------------------------------------------------------------------------------------------------------------


@fact(
    "a batch has submission_status, current_retry_attempt, last_error_code, last_error_message, next_retry_at",
    "submission_status is PENDING and then CONFIRMED",
)
def test_a_batch_is_pending_and_then_confirmed(sms: Served, carrier: Carrier) -> None:
    submitted = sms.program.post("/batches", MESSAGES)
    assert (submitted.status, submitted.json["submission_status"]) == (202, "PENDING")
    confirmed = ended(sms, submitted.json["batch_id"], "CONFIRMED")
    assert submitted.json.keys() == confirmed.keys() >= FIELDS
    assert (confirmed["current_retry_attempt"], confirmed["next_retry_at"]) == (0, None)
    assert (confirmed["last_error_code"], confirmed["last_error_message"]) == (None, None)
    assert submitted.json["batch_id"] in carrier.references


def test_an_error_names_the_field_of_the_batch(sms: Served) -> None:
    message = {"to": "+15550100", "text": "At nine."}
    for field, wrong in (
        ("messages", {"messages": []}),
        ("messages", {"messages": [message | {"text": "x" * 270_000}]}),
        ("idempotency_key", {"messages": [message], "idempotency_key": "ü"}),
    ):
        refused = sms.program.post("/batches", wrong)
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, field), refused.body


@fact(
    "submission_status is PENDING and then FAILED",
    "last_error_code and last_error_message are those of the last attempt",
    "current_retry_attempt counts the retries",
)
def test_a_batch_is_failed_when_no_retries_are_left(sms: Served, carrier: Carrier) -> None:
    batch = read(sms, failed(sms, carrier, "SERVICE_UNAVAILABLE"))
    assert (batch["current_retry_attempt"], batch["next_retry_at"]) == (3, None)
    assert (batch["last_error_code"], batch["last_error_message"]) == (
        "SERVICE_UNAVAILABLE",
        "The carrier answered SERVICE_UNAVAILABLE.",
    )


@fact("batches are found by status")
def test_batches_are_found_by_their_status(sms: Served, carrier: Carrier) -> None:
    rejected = failed(sms, carrier)
    carrier.answers.clear()
    confirmed = submit(sms)
    ended(sms, confirmed, "CONFIRMED")
    found = {
        status: {one["batch_id"] for one in sms.program.get(f"/batches/?status={status}").json["batches"]}
        for status in ("PENDING", "CONFIRMED", "FAILED")
    }
    assert rejected in found["FAILED"] and confirmed in found["CONFIRMED"]
    assert not {rejected, confirmed} & found["PENDING"] and not found["FAILED"] & found["CONFIRMED"]
    assert sms.program.get("/batches?status=LOST").status == 422
    first, second = (sms.program.get(f"/batches?limit=1{at}").json for at in ("", _next_page(sms)))
    assert [one["batches"][0]["batch_id"] for one in (first, second)] == [confirmed, rejected]


def _next_page(sms: Served) -> str:
    return f"&cursor={sms.program.get('/batches?limit=1').json['pagination']['cursor']}"


@fact("a batch that waits because its carrier is cut off says so")
@pytest.mark.parametrize("cut_off", EITHER_STORE, indirect=True)
def test_a_batch_that_waits_for_a_carrier_that_is_cut_off_says_so(cut_off: Served, carrier: Carrier) -> None:
    refuse(carrier, "SERVICE_UNAVAILABLE")
    for _ in range(5):
        submit(cut_off)
    wait_for(lambda: len(cut_off.facts("delivery_failure")) >= 5)
    waiting = wait_for(lambda: held(cut_off, submit(cut_off)))
    assert (waiting["submission_status"], waiting["current_retry_attempt"]) == ("PENDING", 0)
    assert waiting["last_error_code"] is None, "it was not submitted"
    assert re.match("The carrier('s circuit is open| is being probed)", waiting["held"]["reason"])
    assert TIME.fullmatch(waiting["held"]["until"])


def held(served: Served, batch_id: str) -> Json | None:
    batch = read(served, batch_id)
    return batch if batch["held"] is not None else None


@pytest.fixture
def cut_off(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, carriers: Carrier
) -> Iterator[Served]:
    """The profile with its own delays and circuits."""
    with _served(request, tmp_path_factory, carriers) as served:
        yield served


# -- attempts --------------------------------------------------------------------------------------------------------------


@fact(
    "an attempt has attempt_number, attempted_at, error_code, error_message, carrier_response, next_retry_at",
)
def test_each_attempt_is_logged(sms: Served, carrier: Carrier) -> None:
    refuse(carrier, "RATE_LIMIT", 429)
    batch_id = submit(sms)
    wait_for(lambda: len(attempts(sms, batch_id)) >= 1)
    carrier.answers.clear()
    ended(sms, batch_id, "CONFIRMED")
    log = attempts(sms, batch_id)
    assert all(list(one) == ATTEMPT_FIELDS for one in log)
    assert [one["attempt_number"] for one in log] == list(range(1, len(log) + 1))
    assert all(TIME.fullmatch(one["attempted_at"]) for one in log)
    first, last = log[0], log[-1]
    assert (first["error_code"], first["error_message"]) == ("RATE_LIMIT", "The carrier answered RATE_LIMIT.")
    assert json.loads(first["carrier_response"]) == {"code": "RATE_LIMIT"}
    assert first["attempted_at"] < first["next_retry_at"] <= log[1]["attempted_at"]
    assert (last["error_code"], last["error_message"], last["next_retry_at"]) == (None, None, None)
    assert json.loads(last["carrier_response"])["messages"] == 1


@fact("carrier_response has at most 500 characters")
def test_a_long_response_is_cut(sms: Served, carrier: Carrier) -> None:
    carrier.answers["/batches"] = Answer(400, {"code": "BATCH_REJECTED", "text": "x" * 2_000})
    batch_id = submit(sms)
    ended(sms, batch_id, "FAILED")
    (one,) = attempts(sms, batch_id)
    assert len(one["carrier_response"]) == 500 and one["carrier_response"].startswith('{"code": "BATCH_REJECTED"')


# -- retries -------------------------------------------------------------------------------------------------------------


@fact("a batch is retried after 300, 600 and 1200 s")
async def test_the_submissions_follow_the_schedule(stage: Theatre, carrier: Carrier) -> None:
    """On a simulated clock."""
    refuse(carrier, "SERVICE_UNAVAILABLE")
    batch = await stage.doorstep.batches.submit("sms.batch", MESSAGES)
    await stage.pass_time(86_400)
    at = [one.at for one in await stage.api.batches.attempts(batch.batch_id)]
    assert [(later - sooner).total_seconds() for sooner, later in pairwise(at)] == [300, 600, 1_200]


@fact(
    "TIMEOUT, RATE_LIMIT and SERVICE_UNAVAILABLE are retried",
    "the table decides, also about the engine's own names, whatever exception class carried the code: transient codes",
)
@pytest.mark.parametrize("status", [400, 503], ids=["in Permanent", "in Transient"])
@pytest.mark.parametrize("code", TRANSIENT)
def test_a_transient_code_is_retried(sms: Served, carrier: Carrier, code: str, status: int) -> None:
    batch_id = failed(sms, carrier, code, status)
    assert [one["error_code"] for one in attempts(sms, batch_id)] == [code] * 4
    assert _raised(sms, batch_id) == ("Permanent" if status == 400 else "Transient")


@fact(
    "AUTH_FAILED, INVALID_FORMAT and BATCH_REJECTED are never retried",
    "the table decides, also about the engine's own names, whatever exception class carried the code: permanent codes",
)
@pytest.mark.parametrize("status", [400, 503], ids=["in Permanent", "in Transient"])
@pytest.mark.parametrize("code", PERMANENT)
def test_a_permanent_code_is_never_retried(sms: Served, carrier: Carrier, code: str, status: int) -> None:
    batch_id = failed(sms, carrier, code, status)
    assert [one["error_code"] for one in attempts(sms, batch_id)] == [code]
    assert _raised(sms, batch_id) == ("Permanent" if status == 400 else "Transient")


def _raised(sms: Served, batch_id: str) -> str:
    """The class of the exception that carried the carrier's code."""
    line = wait_for(lambda: sms.facts("delivery_failure", event_id=batch_id))[-1]
    (name,) = re.findall(r"doorstep\.errors\.(\w+): ", line["traceback"])
    return str(name)


@fact("a plain TimeoutError is categorised as TIMEOUT", "a plain ConnectionError is categorised as CONNECTION")
def test_plain_exceptions_are_categorised(
    sms: Served, carrier: Carrier, carriers: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, answer in (("TIMEOUT", lambda *_: time.sleep(1)), ("CONNECTION", lambda *_: None)):
        with monkeypatch.context() as broken:
            broken.setattr(carrier, "answer", answer)
            batch_id = submit(sms)
            wait_for(lambda: attempts(sms, batch_id))  # noqa: B023  called at once
        first = attempts(sms, batch_id)[0]
        assert (first["error_code"], first["carrier_response"]) == (code, "")
        assert first["next_retry_at"] is not None
        ended(sms, batch_id, "CONFIRMED")


# -- alert -----------------------------------------------------------------------------------------------------------------


def alerts(sms: Served, batch_id: str) -> list[Json]:
    return sms.facts("notice", message="batch failed", batch_id=batch_id)


@fact("operations are told of each batch that has finally failed, once, with its error", "the alert is in the log")
def test_each_batch_that_has_finally_failed_is_one_alert(sms: Served, carrier: Carrier) -> None:
    batches = [failed(sms, carrier, "SERVICE_UNAVAILABLE") for _ in range(2)]
    for batch_id in batches:
        (alert,) = wait_for(lambda: alerts(sms, batch_id))  # noqa: B023  called at once
        assert (alert["level"], alert["attempts"]) == ("error", 4)
        assert (alert["error_code"], alert["error_message"]) == (
            "SERVICE_UNAVAILABLE",
            "The carrier answered SERVICE_UNAVAILABLE.",
        )
    carrier.answers.clear()
    confirmed = submit(sms)
    ended(sms, confirmed, "CONFIRMED")
    assert alerts(sms, confirmed) == []


@fact("operations are told of a permanent failure at once")
def test_a_permanent_failure_is_an_alert_at_once(sms: Served, carrier: Carrier) -> None:
    batch_id = failed(sms, carrier, "AUTH_FAILED", 401)
    (alert,) = wait_for(lambda: alerts(sms, batch_id))
    (attempt,) = attempts(sms, batch_id)
    assert (alert["attempts"], alert["error_code"]) == (1, "AUTH_FAILED")
    later = datetime.fromisoformat(alert["@timestamp"]) - datetime.fromisoformat(attempt["attempted_at"])
    assert later.total_seconds() < 10


# -- resubmission ------------------------------------------------------------------------------------------------------


@fact(
    "a failed batch is resubmitted by API, with its counter at 0",
    "a resubmission is logged",
    "a resubmission is audited",
)
def test_a_failed_batch_is_resubmitted(sms: Served, carrier: Carrier) -> None:
    batch_id = failed(sms, carrier, "SERVICE_UNAVAILABLE")
    assert read(sms, batch_id)["current_retry_attempt"] == 3
    carrier.answers.clear()
    operator = sms.key("operator")
    reason = {"reason": "the carrier is back"}
    resubmitted = sms.program.post(f"/batches/{batch_id}/resubmit", reason, key=operator)
    assert resubmitted.status == 200, resubmitted.body
    assert (resubmitted.json["submission_status"], resubmitted.json["current_retry_attempt"]) == ("PENDING", 0)
    ended(sms, batch_id, "CONFIRMED")
    assert len(attempts(sms, batch_id)) == 5
    (line,) = wait_for(lambda: sms.facts("notice", message="batch resubmitted", batch_id=batch_id))
    assert (line["by"], line["reason"]) == ("operator", "the carrier is back")
    entries = sms.program.get("/v1/audit?action=batch.resubmit").json["audit"]
    (entry,) = [one for one in entries if batch_id in one["subjects"]]
    assert (entry["actor"], entry["reason"]) == ("operator", "the carrier is back")


@fact("only FAILED batches can be resubmitted")
def test_only_a_failed_batch_can_be_resubmitted(sms: Served, carrier: Carrier) -> None:
    batch_id = submit(sms)
    ended(sms, batch_id, "CONFIRMED")
    refused = sms.program.post(f"/batches/{batch_id}/resubmit")
    assert refused.status == 409
    assert refused.json["detail"] == f"batch {batch_id} is CONFIRMED; only FAILED batches can be resubmitted"
    assert sms.program.post(f"/batches/{_unknown()}/resubmit").status == 404
    rejected = failed(sms, carrier)
    assert sms.program.post(f"/batches/{rejected}/resubmit", key=sms.key("viewer")).status == 403
    assert read(sms, rejected)["submission_status"] == "FAILED"


def _unknown() -> str:
    return "01977e43-2a80-7000-b6ff-3dbf61abe39e"
