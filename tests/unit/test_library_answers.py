"""What the library returns: the shapes of the API and its client, with times as datetimes in UTC."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import get_type_hints
from uuid import UUID

import pytest

from doorstep import (
    Batch,
    DeadLetter,
    Doorstep,
    Entity,
    Gate,
    Pipeline,
    Posted,
    Receipt,
    Received,
    Stage,
    SubmissionAttempt,
    Transient,
)
from doorstep.errors import InvalidInput
from doorstep.schemas import deliveries, endpoints, events, pipelines
from doorstep.testing import sandbox


@pytest.fixture
def ds() -> Doorstep:
    return Doorstep("memory://")


async def test_a_program_of_one_tenant_reads_events_deliveries_and_attempts_without_an_organization(
    ds: Doorstep,
) -> None:
    given: list[Received] = []
    letters: list[DeadLetter] = []
    ds.on_dead_letter(letters.append)

    @ds.handler("order.paid", policy={"delays": [60], "jitter": 0})
    def ship(event: Received) -> None:
        given.append(event)
        raise Transient("CLOSED", "The warehouse is closed.")

    async with sandbox(ds) as box:
        receipt = await ds.send("order.paid", {"order": 1})
        await box.drain(until=60)
        event = await ds.event(receipt.event_id)
        (delivery,) = await ds.deliveries(receipt.event_id)
        first, second = await ds.attempts(delivery.delivery_id)
        (endpoint,) = await ds.endpoints()
    assert isinstance(receipt, Receipt) and (receipt.status, receipt.verdict) == ("received", "accepted")
    assert isinstance(event, events.Event) and (event.status, event.payload) == ("failed", {"order": 1})
    assert event.deliveries == (delivery,) and isinstance(delivery, deliveries.Delivery)
    assert isinstance(first, deliveries.Attempt) and ", in ship\n" in first.error_detail
    assert isinstance(endpoint, endpoints.Endpoint) and endpoint.policy.delays == (60.0,)
    assert first.next_retry_at == first.finished_at + timedelta(seconds=60) == second.started_at
    assert given[0].accepted_at == event.created_at == receipt.created_at
    assert letters[0].at == delivery.settled_at
    for one in (receipt, event, delivery, first, endpoint):
        assert "org_id" not in one.__struct_fields__


async def test_every_time_is_a_datetime_in_utc(ds: Doorstep) -> None:
    kinds = (Batch, DeadLetter, Entity, Posted, Receipt, Received, SubmissionAttempt)
    shapes = (events.Event, events.RejectedMessage, deliveries.Attempt, pipelines.EntityChange)
    for kind in (*kinds, *shapes):
        times = {name: hint for name, hint in get_type_hints(kind).items() if name.endswith("_at") or name == "at"}
        assert times and all("datetime" in str(hint) for hint in times.values()), (kind, times)

    @ds.batch("sms.batch")
    def submit(batch: Received) -> None:
        pass

    async with sandbox(ds) as box:
        sent = await ds.batches.submit("sms.batch", [])
        await box.drain()
        read = await ds.batches.batch(sent.batch_id)
        (submission,) = await ds.batches.attempts(sent.batch_id)
        begun = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=box.clock.now())
    assert sent.created_at == read.created_at == begun and read.created_at.tzinfo is UTC
    assert submission.at == read.settled_at == begun


async def test_times_are_given_as_datetimes(ds: Doorstep) -> None:
    async with sandbox(ds) as box:
        later = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=box.clock.now(), hours=1)
        receipt = await ds.send("order.paid", {}, deliver_at=later, expires_at=later + timedelta(hours=1))
        event = await ds.event(receipt.event_id)
    assert (event.deliver_at, event.expires_at) == (later, later + timedelta(hours=1))


@pytest.mark.parametrize("wrong", [1_700_000_000_000_000, 1.7e9, "2030-01-01T00:00:00Z"])
@pytest.mark.parametrize("field", ["deliver_at", "expires_at"])
async def test_a_time_that_is_no_datetime_is_refused_in_a_sentence(ds: Doorstep, field: str, wrong: object) -> None:
    sentence = f"{field}: must be a datetime with a time zone, got {wrong!r}"
    async with sandbox(ds) as box:
        with pytest.raises(InvalidInput) as refused:
            await ds.send("order.paid", {}, **{field: wrong})  # type: ignore[call-overload]
        assert str(refused.value) == sentence
        with pytest.raises(InvalidInput) as refused:
            await ds.send_many([("order.paid", {}), ("order.paid", {}, {field: wrong})])  # type: ignore[list-item]
        assert str(refused.value) == f"events[1].{sentence}"
        with pytest.raises(InvalidInput, match="deliver_at: a time needs a time zone"):
            await ds.send("order.paid", {}, deliver_at=datetime(2030, 1, 1))
        box.assert_nothing_sent()


async def test_many_events_are_sent_in_one_transaction_with_the_options_of_send(ds: Doorstep) -> None:
    async with sandbox(ds) as box:
        later = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=box.clock.now(), hours=1)
        plain, optional, again, conflict = await ds.send_many(
            [
                ("order.paid", {"order": 1}),
                ("order.paid", {"order": 2}, {"deliver_at": later, "idempotency_key": "k"}),
                ("order.paid", {"order": 2}, {"deliver_at": later, "idempotency_key": "k"}),
                ("order.paid", {"order": 3}, {"idempotency_key": "k"}),
            ]
        )
        assert (await ds.event(plain.event_id)).payload == {"order": 1}
        assert (await ds.event(optional.event_id)).deliver_at == later
    assert isinstance(plain, Receipt) and optional.event_id == again.event_id
    assert [one.verdict for one in (plain, optional, again, conflict)] == [
        "accepted", "accepted", "repeated", "conflict",
    ]  # fmt: skip


async def test_the_entities_of_a_pipeline_are_what_the_client_returns(ds: Doorstep) -> None:
    parcels = Pipeline(
        "parcel",
        first="packed",
        stages=[Stage("weighing", failed="not_weighed"), Gate("to_be_checked")],
        last="sent",
        policy=(0,),
    )
    ds.add(parcels)
    given: list[Entity] = []

    @parcels.stage("weighing")
    def weigh(parcel: Entity) -> dict[str, object]:
        given.append(parcel)
        return {**parcel.data, "grams": 100}

    async with sandbox(ds) as box:
        begun = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=box.clock.now())
        started = await parcels.start({"to": "Mary"}, "p1")
        await box.drain()
        waiting = await parcels.entity("p1")
        (listed,) = (await parcels.list()).items
        rejected = await parcels.reject("p1", "mary", "too heavy")
        retried = await parcels.retry("p1", "mary")
        await box.drain()
        approved = await parcels.approve("p1", "mary")
        history = await parcels.history("p1")
    entities = (started, waiting, listed, rejected, retried, approved, *given)
    assert all(type(one) is pipelines.Entity for one in entities)
    assert [one.status for one in entities] == [
        "packed", "to_be_checked", "to_be_checked", "dead_letter", "packed", "sent", "weighing", "weighing",
    ]  # fmt: skip
    assert {type(one) for one in history} == {pipelines.EntityChange}
    assert started.created_at == started.changed_at == begun == history[0].at and begun.tzinfo is UTC
    assert waiting.data == {"to": "Mary", "grams": 100}
    for one in (*entities, *history):
        assert "org_id" not in one.__struct_fields__
    with sqlite3.connect(":memory:") as connection:
        later = parcels.start_sync({}, "p2", connection=connection)
    assert type(later) is pipelines.Entity and isinstance(later.created_at, datetime)


async def test_a_rejected_message_names_an_organization_only_if_it_is_not_the_default_one(ds: Doorstep) -> None:
    stranger = UUID("00112233-4455-7677-8899-aabbccddeeff")
    async with sandbox(ds) as box:
        with sqlite3.connect(":memory:") as connection:
            own = ds.send_sync("order.paid", {}, endpoint_ids=[stranger], connection=connection)
            other = ds.send_sync("order.paid", {}, org_id=stranger, connection=connection)
        await box.drain()
        first, second = await ds.outbox.refused()
    assert isinstance(first, events.RejectedMessage)
    assert (first.event_id, first.org_id, first.refusal) == (own.event_id, None, f"no endpoint {stranger}")
    assert (second.event_id, second.org_id) == (other.event_id, stranger)
    assert own.created_at == first.created_at <= first.refused_at and first.refused_at.tzinfo is UTC
