"""R9.3: batches, with a running worker, the HTTP API on a socket, and a handler that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from doorstep import DeadLetter, Doorstep, Permanent, Received, Transient
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Instant, from_datetime
from doorstep.errors import ConfigError
from doorstep.model.endpoint import CircuitRules
from doorstep.model.org import Role
from doorstep.telemetry.facts import DeliveryTransition, StatusTransition
from tests.support.api import Api, lasting, serving
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene, until

BUSY = Transient("B-1", "The carrier is busy.", response={"code": "B-1", "text": "busy"})
REJECTED = Permanent("R-9", "The carrier said no.", response="R-9 rejected")
CODES = {"B-1": "SERVICE_UNAVAILABLE", "R-9": "BATCH_REJECTED"}
DELAYS = (300, 600, 1_200)


class Carrier:
    """Raises the scripted errors one after another, then accepts everything."""

    def __init__(self) -> None:
        self.script: list[Exception] = []
        self.given: list[Received] = []
        self.letters: list[DeadLetter] = []

    def declare(self, doorstep: Doorstep) -> None:
        patient = CircuitRules(failures_max=1_000)
        doorstep.batch("sms.batch", name="carrier", policy="carrier", code_map=CODES, circuit=patient)(self.submit)
        doorstep.on_dead_letter(self.letters.append)

    def submit(self, batch: Received) -> dict[str, str]:
        self.given.append(batch)
        if self.script:
            raise self.script.pop(0)
        return {"reference": f"C-{len(self.given)}"}


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture
async def scene(database_url: str, receiver: Receiver, carrier: Carrier) -> AsyncIterator[Scene]:
    made = Scene(database_url, receiver)
    await made.open(carrier.declare)
    yield made
    await made.close()


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with serving(scene) as it:
        yield it


async def submit(api: Api, payload: object = 1) -> str:
    """Submit a batch like any event; its id is the event's id."""
    return await api.send("sms.batch", payload)


async def read(api: Api, batch_id: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/batches/{batch_id}")
    assert answer.status == 200, answer.body
    batch: dict[str, Any] = answer.json
    return batch


async def until_batch(api: Api, batch_id: str, **fields: object) -> dict[str, Any]:
    async def reached() -> bool:
        return (await read(api, batch_id)).items() >= fields.items()

    await until(reached, f"a batch with {fields}")
    return await read(api, batch_id)


async def failed_batch(api: Api, carrier: Carrier) -> str:
    carrier.script = [REJECTED]
    batch_id = await submit(api)
    await until_batch(api, batch_id, status="FAILED")
    return batch_id


# -- statuses ----------------------------------------------------------------------------------------------------------


async def test_a_batch_is_pending_until_the_carrier_has_taken_it(api: Api, carrier: Carrier) -> None:
    carrier.script = [BUSY]
    batch_id = await submit(api)
    batch = await until_batch(api, batch_id, attempts=1, status="PENDING", error_code="SERVICE_UNAVAILABLE")
    assert batch["next_retry_at"] is not None
    assert batch["settled_at"] is None


async def test_a_batch_is_confirmed_when_the_carrier_has_taken_it(api: Api) -> None:
    batch = await until_batch(api, await submit(api), status="CONFIRMED")
    assert (batch["error_code"], batch["next_retry_at"]) == (None, None)
    assert batch["settled_at"] is not None


async def test_the_answer_has_exactly_its_fields_and_never_the_payload(api: Api) -> None:
    assert set(await read(api, await submit(api, {"to": "+15550100"}))) == {
        "batch_id",
        "event_type",
        "endpoint_id",
        "delivery_id",
        "status",
        "created_at",
        "attempts",
        "retry_attempts",
        "retries_max",
        "last_attempt_at",
        "next_retry_at",
        "held",
        "settled_at",
        "error_code",
        "error_reason",
    }


async def test_the_endpoint_of_a_batch_handler_says_what_it_is(api: Api) -> None:
    (endpoint,) = (await api.get("/v1/endpoints")).json["endpoints"]
    assert (endpoint["batch"], endpoint["event_types"]) == (True, ["sms.batch"])


# -- the carrier log ---------------------------------------------------------------------------------------------------


async def test_transient_codes_are_retried_after_300_600_and_1200_seconds_and_each_attempt_is_logged(
    scene: Scene, api: Api, carrier: Carrier
) -> None:
    carrier.script = [BUSY] * 4
    batch_id = await submit(api)
    for number in range(1, 4):
        scene.leap_to(await next_retry_after(scene, batch_id, number))
    await until_batch(api, batch_id, status="FAILED")
    log = (await api.get(f"/v1/batches/{batch_id}/attempts")).json["attempts"]
    assert [one["number"] for one in log] == [1, 2, 3, 4]
    assert {one["error_code"] for one in log} == {"SERVICE_UNAVAILABLE"}
    assert {one["error_reason"] for one in log} == {"The carrier is busy."}
    assert {one["carrier_response"] for one in log} == {'{"code":"B-1","text":"busy"}'}
    submissions = await scene.doorstep.batches.attempts(UUID(batch_id))
    assert submissions[-1].next_retry_at is None
    for submission, delay in zip(submissions, DELAYS):
        assert submission.next_retry_at is not None
        assert 0.9 * delay <= (submission.next_retry_at - submission.at).total_seconds() <= 1.1 * delay + 1


async def next_retry_after(scene: Scene, batch_id: str, attempts: int) -> Instant:
    """When the batch is tried again, once this many attempts have failed."""

    async def waits() -> bool:
        batch = await scene.doorstep.batches.batch(UUID(batch_id))
        return batch.attempts == attempts and batch.next_retry_at is not None

    await until(waits, "a retry")
    next_retry_at = (await scene.doorstep.batches.batch(UUID(batch_id))).next_retry_at
    return 0 if next_retry_at is None else from_datetime(next_retry_at)


async def test_permanent_codes_are_not_retried(scene: Scene, api: Api, carrier: Carrier) -> None:
    batch_id = await failed_batch(api, carrier)
    scene.leap(86_400)
    batch = await read(api, batch_id)
    assert (batch["attempts"], batch["error_code"]) == (1, "BATCH_REJECTED")
    (attempt,) = (await api.get(f"/v1/batches/{batch_id}/attempts")).json["attempts"]
    assert (attempt["carrier_response"], attempt["next_retry_at"]) == ("R-9 rejected", None)


async def test_what_the_carrier_said_when_it_took_the_batch_is_logged_too(api: Api) -> None:
    batch_id = await submit(api)
    await until_batch(api, batch_id, status="CONFIRMED")
    (attempt,) = (await api.get(f"/v1/batches/{batch_id}/attempts")).json["attempts"]
    assert (attempt["error_code"], attempt["carrier_response"]) == (None, '{"reference":"C-1"}')


async def test_there_is_one_alert_after_the_last_failure(api: Api, carrier: Carrier) -> None:
    batch_id = await failed_batch(api, carrier)
    await until(lambda: len(carrier.letters) == 1, "an alert")
    (letter,) = carrier.letters
    assert (str(letter.event_id), letter.code, letter.reason) == (batch_id, "BATCH_REJECTED", "The carrier said no.")


# -- resubmission ------------------------------------------------------------------------------------------------------


async def test_a_resubmission_goes_out_at_once_resets_the_counter_and_is_logged(
    scene: Scene, api: Api, carrier: Carrier
) -> None:
    batch_id = await failed_batch(api, carrier)
    answer = await api.post(f"/v1/batches/{batch_id}/resubmit", {"reason": "the carrier is back"})
    assert (answer.status, answer.json["status"], answer.json["retry_attempts"]) == (202, "PENDING", 0)
    batch = await until_batch(api, batch_id, status="CONFIRMED")
    assert batch["attempts"] == 2
    (line,) = (await api.get("/v1/audit?action=batch.resubmit")).json["audit"]
    assert (line["subjects"], line["result"], line["reason"]) == (
        [batch_id],
        "1 done, 0 refused",
        "the carrier is back",
    )
    assert api.key.startswith(line["actor_id"])
    moves = [(one.old_state, one.new_state) for one in scene.heard(DeliveryTransition)]
    assert ("dead", "pending") in moves
    changes = [(one.old_status, one.new_status) for one in scene.heard(StatusTransition)]
    assert ("failed", "queued") in changes


async def test_what_is_not_failed_is_a_409_that_says_so(api: Api, carrier: Carrier) -> None:
    batch_id = await submit(api)
    await until_batch(api, batch_id, status="CONFIRMED")
    answer = await api.post(f"/v1/batches/{batch_id}/resubmit")
    assert answer.status == 409
    assert "is CONFIRMED; only FAILED batches can be resubmitted" in answer.json["detail"]
    assert len(carrier.given) == 1


async def test_of_several_who_resubmit_at_once_one_does_and_the_others_are_told(
    scene: Scene, api: Api, carrier: Carrier
) -> None:
    batch_id = await failed_batch(api, carrier)
    await scene.doorstep.components.endpoints.pause(
        DEFAULT_ORG, UUID((await read(api, batch_id))["endpoint_id"]), "ops"
    )
    answers = await asyncio.gather(*(api.post(f"/v1/batches/{batch_id}/resubmit") for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [202, 409, 409, 409]


# -- found by status ---------------------------------------------------------------------------------------------------


async def test_batches_are_found_by_status_and_by_type_page_by_page(api: Api, carrier: Carrier) -> None:
    failed = await failed_batch(api, carrier)
    confirmed = [await submit(api) for _ in range(5)]
    await api.send("order.paid")
    for batch_id in confirmed:
        await until_batch(api, batch_id, status="CONFIRMED")
    pages = [page async for page in api.pages("/v1/batches?status=CONFIRMED", "batches", 2)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [one["batch_id"] for page in pages for one in page] == confirmed[::-1]
    assert [one["batch_id"] for one in await api.all("/v1/batches?status=FAILED", "batches")] == [failed]
    assert len(await api.all("/v1/batches?event_type=sms.*", "batches")) == 6
    assert await api.all("/v1/batches?event_type=mms.*", "batches") == []


@lasting
@pytest.mark.parametrize("query", ["status=failed", "status=DONE", "state=FAILED", "limit=0", "cursor=x"])
async def test_a_question_that_makes_no_sense_is_a_422_that_names_the_parameter(lasting_api: Api, query: str) -> None:
    answer = await lasting_api.get(f"/v1/batches?{query}")
    assert answer.status == 422
    assert query.partition("=")[0] in str(answer.json)


# -- permissions -------------------------------------------------------------------------------------------------------


async def test_an_event_that_is_no_batch_and_one_that_does_not_exist_answer_the_same_404(api: Api) -> None:
    other = await api.send("order.paid")
    for batch_id in (other, str(uuid4())):
        for method, path in (("GET", ""), ("GET", "/attempts"), ("POST", "/resubmit")):
            answer = await api.request(method, f"/v1/batches/{batch_id}{path}")
            assert (answer.status, answer.json["detail"]) == (404, f"no batch {batch_id}")


async def test_only_operators_may_resubmit_and_viewers_may_look(scene: Scene, api: Api, carrier: Carrier) -> None:
    batch_id = await failed_batch(api, carrier)
    wanted = {Role.VIEWER: (200, 403), Role.PUBLISHER: (403, 403), Role.OPERATOR: (200, 202)}
    for role, statuses in wanted.items():
        _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, role, role, "test")
        caller = api.with_key(key)
        looked = await caller.get(f"/v1/batches/{batch_id}")
        acted = await caller.post(f"/v1/batches/{batch_id}/resubmit")
        assert (looked.status, acted.status) == statuses, role


# -- declarations ------------------------------------------------------------------------------------------------------


async def test_a_second_batch_handler_for_the_same_event_type_stops_the_start(scene: Scene, carrier: Carrier) -> None:
    def twice(doorstep: Doorstep) -> None:
        carrier.declare(doorstep)
        doorstep.batch("sms.batch", name="other")(carrier.submit)

    with pytest.raises(ConfigError, match="'carrier' and 'other' both take 'sms.batch'"):
        await scene.open(twice)


async def test_an_endpoint_made_over_http_can_take_batches_too(api: Api, receiver: Receiver) -> None:
    """A carrier with a webhook needs no handler."""
    made = await api.endpoint(receiver.url("/mms"), event_types=["mms.batch"], batch=True)
    assert made["batch"] is True
    await until_batch(api, await api.send("mms.batch"), status="CONFIRMED")
    refused = await api.post(
        "/v1/endpoints", {"name": "all", "url": receiver.url("/all"), "event_types": ["mms.*"], "batch": True}
    )
    assert refused.status == 422
    assert "must be exact" in str(refused.json)
