"""Batches: how a status is derived, and what is refused when a batch is declared, submitted or resubmitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from doorstep import Doorstep, Permanent, Received
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotFound, StoreUnavailable
from doorstep.model.action import ActionKind
from doorstep.model.batch import STATES, BatchStatus
from doorstep.model.delivery import DeliveryState
from doorstep.testing import Sandbox, sandbox

NUMBERS = {"numbers": ["+15550100"]}


def submits(_: Received) -> str:
    return "OK"


def rejects(_: Received) -> None:
    raise Permanent("BATCH_REJECTED", "No.")


def carrier_of(function: object) -> Doorstep:
    doorstep = Doorstep("memory://")
    doorstep.batch("sms.batch", name="carrier")(function)  # type: ignore[type-var]
    return doorstep


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with sandbox(carrier_of(submits)) as it:
        yield it


@pytest.fixture
async def failing() -> AsyncIterator[Sandbox]:
    async with sandbox(carrier_of(rejects)) as it:
        yield it


async def act_on(box: Sandbox, kind: ActionKind, batch_id: UUID) -> None:
    delivery_id = (await box.doorstep.batches.batch(batch_id)).delivery_id
    assert delivery_id is not None
    await box.doorstep.components.deliveries.act(kind, DEFAULT_ORG, [delivery_id], "ops")


# -- statuses ----------------------------------------------------------------------------------------------------------


def test_every_state_of_a_delivery_is_exactly_one_status_of_a_batch() -> None:
    listed = [state for states in STATES.values() for state in states]
    assert sorted(listed) == sorted(DeliveryState)


async def test_what_an_operator_resolves_is_confirmed(failing: Sandbox) -> None:
    batch = await failing.doorstep.batches.submit("sms.batch", NUMBERS)
    await failing.drain()
    await act_on(failing, ActionKind.RESOLVE, batch.batch_id)
    assert (await failing.doorstep.batches.batch(batch.batch_id)).status is BatchStatus.CONFIRMED


async def test_the_status_is_that_of_the_batch_delivery_whatever_other_endpoints_do() -> None:
    doorstep = carrier_of(submits)
    doorstep.handler("sms.*", name="archive")(rejects)
    async with sandbox(doorstep) as box:
        batch = await doorstep.batches.submit("sms.batch", NUMBERS)
        await box.drain()
        assert (await doorstep.batches.batch(batch.batch_id)).status is BatchStatus.CONFIRMED
        assert (await doorstep.components.reader.event(DEFAULT_ORG, batch.batch_id)).status == "failed"


# -- declaring ---------------------------------------------------------------------------------------------------------


def test_two_batch_handlers_for_one_event_type_are_refused_by_name() -> None:
    doorstep = carrier_of(submits)
    with pytest.raises(ConfigError, match="'carrier' and 'other' both take 'sms.batch'"):
        doorstep.batch("mms.batch", "sms.batch", name="other")(submits)


def test_two_organizations_may_have_one_each() -> None:
    carrier_of(submits).batch("sms.batch", name="other", org_id=uuid4())(submits)


def test_a_batch_handler_is_retried_like_a_carrier_unless_it_says_otherwise() -> None:
    doorstep = carrier_of(submits)
    doorstep.batch("mms.batch", name="quick", policy="quick")(submits)
    assert [one.form.policy for one in doorstep.registry.declarations] == ["carrier", "quick"]


async def test_a_batch_handler_must_name_its_event_types_in_full() -> None:
    with pytest.raises(ConfigError, match="'carrier': .*must be exact for a batch endpoint, got 'sms.\\*'"):
        Doorstep("memory://").batch("sms.*", name="carrier")(submits)


async def test_an_event_that_two_batch_endpoints_take_is_one_batch(box: Sandbox) -> None:
    """Code cannot declare two batch endpoints for one event type, but the API can."""
    await box.doorstep.create_endpoint(name="second", handler="carrier", event_types=["sms.batch"], batch=True)
    await box.doorstep.batches.submit("sms.batch", NUMBERS)
    assert len((await box.doorstep.batches.list()).items) == 1


# -- submitting --------------------------------------------------------------------------------------------------------


async def test_what_no_batch_handler_takes_is_refused_and_not_accepted(box: Sandbox) -> None:
    with pytest.raises(InvalidInput, match="no batch handler takes 'mms.batch'"):
        await box.doorstep.batches.submit("mms.batch", NUMBERS)
    box.assert_nothing_sent()


async def test_a_batch_cannot_be_sent_past_its_handler(box: Sandbox) -> None:
    with pytest.raises(InvalidInput, match="endpoint_ids"):
        await box.doorstep.batches.submit("sms.batch", NUMBERS, endpoint_ids=[uuid4()])
    box.assert_nothing_sent()


async def test_once_a_batch_is_accepted_nothing_can_go_wrong_with_its_submission(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        for verb in ("get_many", "find"):
            patched.setattr(box.doorstep.components.store, verb, away)
        batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    read = await box.doorstep.batches.batch(batch.batch_id)
    assert batch == replace(read, delivery_id=None)
    assert (batch.status, batch.retries_max) == (BatchStatus.PENDING, 3)


async def test_a_page_of_batches_has_its_limits(box: Sandbox) -> None:
    for limit in (0, -1, 201, True, "5"):
        with pytest.raises(InvalidInput, match="limit: must be a whole number from 1 to 200"):
            await box.doorstep.batches.list(limit=limit)  # type: ignore[arg-type]


async def test_the_same_batch_under_one_idempotency_key_is_one_batch(box: Sandbox) -> None:
    first = await box.doorstep.batches.submit("sms.batch", NUMBERS, idempotency_key="monday")
    again = await box.doorstep.batches.submit("sms.batch", NUMBERS, idempotency_key="monday")
    assert again.batch_id == first.batch_id


async def test_an_event_that_is_no_batch_is_not_found_among_them(box: Sandbox) -> None:
    receipt = await box.doorstep.send("order.paid", {})
    for read in (box.doorstep.batches.batch, box.doorstep.batches.attempts):
        with pytest.raises(NotFound, match="no batch"):
            await read(receipt.event_id)


async def test_a_batch_of_another_organization_is_not_found(box: Sandbox) -> None:
    batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    with pytest.raises(NotFound):
        await box.doorstep.batches.batch(batch.batch_id, org_id=UUID(int=9))


async def test_a_deleted_event_is_no_batch_any_more(box: Sandbox) -> None:
    batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    await box.drain()
    await box.doorstep.components.events.delete(DEFAULT_ORG, batch.batch_id, "ops")
    with pytest.raises(NotFound):
        await box.doorstep.batches.batch(batch.batch_id)


# -- resubmitting ------------------------------------------------------------------------------------------------------


async def test_a_pending_batch_is_not_resubmitted_and_the_refusal_says_why(box: Sandbox) -> None:
    batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    with pytest.raises(Conflict, match="is PENDING; only FAILED batches can be resubmitted"):
        await box.doorstep.batches.resubmit(batch.batch_id, "ops")


async def test_a_confirmed_batch_is_not_resubmitted(box: Sandbox) -> None:
    batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    await box.drain()
    with pytest.raises(Conflict, match="is CONFIRMED"):
        await box.doorstep.batches.resubmit(batch.batch_id, "ops")


async def test_a_cancelled_batch_is_failed_but_must_be_submitted_anew(box: Sandbox) -> None:
    batch = await box.doorstep.batches.submit("sms.batch", NUMBERS)
    await act_on(box, ActionKind.CANCEL, batch.batch_id)
    assert (await box.doorstep.batches.batch(batch.batch_id)).status is BatchStatus.FAILED
    with pytest.raises(Conflict, match="was cancelled and cannot be resubmitted; submit it as a new one"):
        await box.doorstep.batches.resubmit(batch.batch_id, "ops")


async def test_a_deleted_dead_letter_is_not_resubmitted(failing: Sandbox) -> None:
    batch = await failing.doorstep.batches.submit("sms.batch", NUMBERS)
    await failing.drain()
    await act_on(failing, ActionKind.DELETE, batch.batch_id)
    with pytest.raises(Conflict, match="was deleted by an operator"):
        await failing.doorstep.batches.resubmit(batch.batch_id, "ops")
    assert (await failing.doorstep.batches.list(BatchStatus.FAILED)).items == ()


async def test_a_failed_batch_goes_out_at_once_and_not_in_five_seconds(failing: Sandbox) -> None:
    batch = await failing.doorstep.batches.submit("sms.batch", NUMBERS)
    await failing.drain()
    again = await failing.doorstep.batches.resubmit(batch.batch_id, "ops", "the carrier changed its mind")
    assert (again.status, again.retry_attempts, again.attempts) == (BatchStatus.PENDING, 0, 1)
    await failing.drain()
    assert (await failing.doorstep.batches.batch(batch.batch_id)).attempts == 2
