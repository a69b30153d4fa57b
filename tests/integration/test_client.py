"""The Python client against a running program, in its blocking and its asyncio form."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import uuid4

import pytest

from doorstep.client import (
    AsyncClient,
    Client,
    Conflict,
    DeliveryFailed,
    Forbidden,
    Invalid,
    LeasedEvent,
    NewEvent,
    NotFound,
    Selection,
    TimedOut,
    Unauthenticated,
)
from doorstep.receiver import SignatureWrong, Webhook
from doorstep.transports.signature import new_secret
from tests.support.builders import unused
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program, wait_for
from tests.support.receiver import Receiver

NO_RETRIES: list[float] = []


@pytest.fixture
def client(served: Program) -> Iterator[Client]:
    with Client(served.url, ADMIN_KEY) as it:
        yield it


@pytest.fixture
def event_type() -> str:
    """An event type that no other test uses."""
    return f"order.{uuid4()}"


def dead_letter(client: Client, receiver: Receiver, event_type: str) -> str:
    """Send an event that fails on its first attempt; return the id of its delivery."""
    receiver.status = 500
    client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type], policy=NO_RETRIES)
    receipt = client.send(event_type, {"order": 1})
    with pytest.raises(DeliveryFailed):
        client.wait_for_delivery(receipt.event_id)
    (delivery,) = client.events.read(receipt.event_id).deliveries
    return str(delivery.delivery_id)


# -- sending and following -------------------------------------------------------------------------------------


def test_an_event_is_sent_delivered_and_read_back_to_the_byte(
    client: Client, receiver: Receiver, event_type: str
) -> None:
    client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type])
    exact = b'{"price" : 1.10, "big": 12345678901234567890123}'
    receipt = client.send(event_type, exact, metadata={"who": "me"}, correlation_id="corr-1")
    assert (receipt.status, receipt.deliveries, receipt.verdict) == ("received", 1, "accepted")
    status = client.wait_for_delivery(receipt.event_id)
    assert (status.status, status.retry_attempts) == ("delivered", 0)
    assert [one.body for one in receiver.received] == [exact]
    event = client.events.read(receipt.event_id)
    assert bytes(event.payload_json) == exact
    assert event.payload["big"] == 12345678901234567890123
    assert (event.metadata, event.correlation_id) == ({"who": "me"}, "corr-1")
    (delivery,) = event.deliveries
    assert client.deliveries.read(delivery.delivery_id).state == "delivered"
    (attempt,) = client.deliveries.attempts(delivery.delivery_id)
    assert (attempt.number, attempt.response_code) == (1, 200)
    assert [line.new_state for line in client.deliveries.history(delivery.delivery_id)][-1] == "delivered"


async def test_the_same_with_asyncio(served: Program, receiver: Receiver, event_type: str) -> None:
    async with AsyncClient(served.url, ADMIN_KEY) as client:
        endpoint = await client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type])
        receipts = await client.send_many([NewEvent(event_type=event_type, payload=number) for number in range(5)])
        for receipt in receipts:
            assert (await client.wait_for_delivery(receipt.event_id)).status == "delivered"
        seen = [event.event_id async for event in client.events.each(event_type=event_type, limit=2)]
        assert sorted(seen) == sorted(receipt.event_id for receipt in receipts)
        await client.endpoints.delete(endpoint.endpoint_id)


def test_the_same_key_stores_one_event_and_another_body_is_a_conflict(client: Client, event_type: str) -> None:
    first = client.send(event_type, 1, idempotency_key=event_type)
    again = client.send(event_type, 1, idempotency_key=event_type)
    assert (again.event_id, again.verdict) == (first.event_id, "repeated")
    with pytest.raises(Conflict):
        client.send(event_type, 2, idempotency_key=event_type)
    batch = [
        NewEvent(event_type=event_type, payload=2, idempotency_key=event_type),
        NewEvent(event_type=event_type, payload=3),
    ]
    assert [receipt.verdict for receipt in client.send_many(batch)] == ["conflict", "accepted"]


def test_waiting_for_what_nobody_takes_ends_in_time(client: Client, event_type: str) -> None:
    receipt = client.send(event_type, 1)
    with pytest.raises(TimedOut):
        client.wait_for_delivery(receipt.event_id, timeout=0.2)


def test_the_inbox_is_fetched_and_acknowledged(client: Client, event_type: str) -> None:
    receipt = client.send(event_type, {"order": 7}, metadata={"a": 1})
    (item,) = [one for one in client.inbox.each(limit=100) if one.event_id == receipt.event_id]
    assert (item.payload, item.metadata, item.status) == ({"order": 7}, {"a": 1}, "received")
    assert client.inbox.acknowledge(receipt.event_id).status == "delivered"
    assert receipt.event_id not in [one.event_id for one in client.inbox.each(limit=100)]


def test_leased_events_are_acknowledged_and_given_back_with_their_tokens(client: Client, event_type: str) -> None:
    client.send_many([NewEvent(event_type=event_type, payload=n) for n in range(4)])
    first, second, third, fourth = client.inbox.lease(event_types=[event_type], visibility_seconds=120)
    assert sorted(one.payload for one in (first, second, third, fourth)) == [0, 1, 2, 3]
    assert client.inbox.lease(event_types=[event_type]) == ()
    client.inbox.acknowledge(first)
    client.inbox.nack(second)
    (again,) = client.inbox.lease(event_types=[event_type])
    assert (again.event_id, again.receive_count) == (second.event_id, 2)
    with pytest.raises(Conflict, match="leased again"):
        client.inbox.acknowledge(second)
    with pytest.raises(Conflict, match="leased again"):
        client.inbox.acknowledge(second.event_id, lease_token=second.lease_token)
    answers = client.inbox.acknowledge_many([again, third.event_id]).events
    assert [(one.result, one.refusal) for one in answers] == [("acknowledged", None)] * 2
    assert [one.result for one in client.inbox.nack_many([fourth.event_id], delay_seconds=60).events] == ["nacked"]
    assert client.inbox.lease(event_types=[event_type]) == ()


def test_a_consumer_acknowledges_what_it_handled_and_gives_back_what_failed(
    client: Client, event_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = client.send_many([NewEvent(event_type=event_type, payload=n) for n in range(5)])
    seen: list[int] = []

    def handle(event: LeasedEvent) -> None:
        seen.append(event.payload)
        if event.payload == 1 and event.receive_count == 1:
            raise RuntimeError("out of paper")

    options = {"event_types": [event_type], "limit": 2, "until_empty": True}
    assert client.inbox.consume(handle, retry_seconds=0, **options) == 5
    assert sorted(seen) == [0, 1, 1, 2, 3, 4]
    assert {client.events.status(one.event_id).status for one in sent} == {"delivered"}
    (line,) = [one for one in caplog.records if one.name == "doorstep.client"]
    assert "could not be handled" in line.message and line.exc_info is not None


async def test_an_asyncio_consumer_awaits_its_handler_and_ends_when_it_is_cancelled(
    served: Program, event_type: str
) -> None:
    async with AsyncClient(served.url, ADMIN_KEY) as client:
        await _consume_until_cancelled(client, event_type)


async def _consume_until_cancelled(async_client: AsyncClient, event_type: str) -> None:
    await async_client.send_many([NewEvent(event_type=event_type, payload=n) for n in range(3)])
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def handle(event: LeasedEvent) -> None:
        await asyncio.sleep(0)
        await seen.put(event.payload)

    consumer = asyncio.create_task(async_client.inbox.consume(handle, event_types=[event_type]))
    assert sorted([await seen.get() for _ in range(3)]) == [0, 1, 2]
    late = await async_client.send(event_type, 3)
    assert await seen.get() == 3
    assert (await async_client.wait_for_delivery(late.event_id)).status == "delivered"
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


def test_a_list_is_gone_through_to_its_end_in_pages_of_any_size(client: Client, event_type: str) -> None:
    sent = [receipt.event_id for receipt in client.send_many(_events(event_type, 7))]
    for limit in (1, 2, 3, 7, 50):
        assert sorted(one.event_id for one in client.events.each(event_type=event_type, limit=limit)) == sorted(sent)
    page = client.events.page(event_type=event_type, limit=3)
    assert (len(page), page.pagination.has_more) == (3, True)
    since = datetime.now(UTC) - timedelta(minutes=5)
    assert len(client.events.page(event_type=event_type, created_from=since)) == 7
    assert len(client.events.page(event_type=event_type, created_before=since)) == 0


def test_an_event_can_be_called_off_replayed_and_erased(client: Client, receiver: Receiver, event_type: str) -> None:
    endpoint = client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type])
    later = datetime.now(UTC) + timedelta(hours=1)
    receipt = client.send(event_type, {"order": 1}, deliver_at=later)
    assert len(client.events.cancel(receipt.event_id, reason="a test").cancelled) == 1
    with pytest.raises(Conflict):
        client.events.cancel(receipt.event_id)
    replayed = client.events.replay(receipt.event_id, endpoint.endpoint_id)
    assert client.wait_for_delivery(replayed.event_id).status == "delivered"
    client.events.delete(receipt.event_id)
    with pytest.raises(NotFound):
        client.events.read(receipt.event_id)


# -- endpoints -------------------------------------------------------------------------------------------------


def test_an_endpoint_is_created_changed_paused_resumed_and_deleted(client: Client, receiver: Receiver) -> None:
    made = client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=["never.*"], rate_per_second=5)
    assert made.secret.startswith("whsec_")
    changed = client.endpoints.change(made.endpoint_id, name="new shop", rate_per_second=None)
    assert (changed.name, changed.rate_per_second, changed.event_types) == ("new shop", None, ("never.*",))
    with pytest.raises(Conflict):
        client.endpoints.change(made.endpoint_id, name="too late", version=made.version)
    assert client.endpoints.pause(made.endpoint_id, reason="a test").state == "paused"
    assert made.endpoint_id in [one.endpoint_id for one in client.endpoints.each(state="paused", limit=1)]
    assert client.endpoints.resume(made.endpoint_id, drain_per_second=100).state == "active"
    assert client.endpoints.circuit(made.endpoint_id).state == "closed"
    rotated = client.endpoints.rotate_secret(made.endpoint_id, overlap_seconds=60)
    assert rotated.secret != made.secret
    tested = client.endpoints.test(made.endpoint_id, payload={"hello": 1})
    assert client.wait_for_delivery(tested.event_id).status == "delivered"
    assert [one.body for one in receiver.received] == [b'{"hello":1}']
    client.endpoints.delete(made.endpoint_id)
    assert client.endpoints.read(made.endpoint_id).state == "deleted"
    assert made.endpoint_id not in [one.endpoint_id for one in client.endpoints.each()]


@pytest.mark.parametrize("signing", ["v1", "v1a"])
def test_what_is_delivered_verifies_before_during_and_after_a_rotation(
    client: Client, receiver: Receiver, event_type: str, signing: Literal["v1", "v1a"]
) -> None:
    made = client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type], signing=signing)
    old = made.public_key or made.secret
    rotated = client.endpoints.rotate_secret(made.endpoint_id, overlap_seconds=60)
    new = client.endpoints.read(made.endpoint_id).public_key or rotated.secret
    receipt = client.send(event_type, {"order": 1})
    client.wait_for_delivery(receipt.event_id)
    (request,) = receiver.received
    for secrets in ((old,), (new,), (old, new)):
        received = Webhook(*secrets).verify(request.headers, request.body)
        assert received.webhook_id == str(receipt.event_id)
    with pytest.raises(SignatureWrong):
        Webhook(new_secret()).verify(request.headers, request.body)


# -- the queues ------------------------------------------------------------------------------------------------


def test_a_dead_letter_is_found_grouped_and_retried(client: Client, receiver: Receiver, event_type: str) -> None:
    delivery_id = dead_letter(client, receiver, event_type)
    (letter,) = client.dead_letters.page(event_type=event_type)
    assert (str(letter.delivery_id), letter.error) == (delivery_id, "SERVICE_UNAVAILABLE")
    assert letter.endpoint_name.startswith("shop ")
    assert letter.cause is not None
    (group,) = client.dead_letters.groups(event_type=event_type)
    assert (group.cause, group.count) == (letter.cause, 1)
    receiver.status = 200
    retried = client.dead_letters.retry(delivery_id, reason="mended")
    assert (retried.state, retried.retry_attempts) == ("pending", 0)
    assert client.wait_for_delivery(retried.event_id).status == "delivered"
    with pytest.raises(NotFound):
        client.dead_letters.retry(uuid4())


def test_a_dead_letter_is_retried_with_another_payload_resolved_or_deleted(
    client: Client, receiver: Receiver, event_type: str
) -> None:
    delivery_id = dead_letter(client, receiver, event_type)
    receiver.status = 200
    retried = client.dead_letters.edit_and_retry(delivery_id, b'{"order":  2}', reason="a typing error")
    client.wait_for_delivery(retried.event_id)
    assert receiver.received[-1].body == b'{"order":  2}'
    assert client.deliveries.read(delivery_id).edited
    assert client.deliveries.payload(delivery_id) == b'{"order":  2}'
    assert client.dead_letters.resolve(dead_letter(client, receiver, f"{event_type}.a")).state == "resolved"
    client.dead_letters.delete(dead_letter(client, receiver, f"{event_type}.b"))
    assert len(client.dead_letters.page(event_type=f"{event_type}.b")) == 0


def test_deliveries_and_attempts_are_listed_in_every_state(client: Client, receiver: Receiver, event_type: str) -> None:
    endpoint = client.endpoints.create(name="shop", url=receiver.url, event_types=[event_type], policy=NO_RETRIES)
    delivered = client.send(event_type, 1)
    client.wait_for_delivery(delivered.event_id)
    receiver.status = 500
    failed = client.send(event_type, 2)
    with pytest.raises(DeliveryFailed):
        client.wait_for_delivery(failed.event_id)
    both = [failed.event_id, delivered.event_id]
    of_it = {"endpoint_id": endpoint.endpoint_id, "since": datetime.now(UTC) - timedelta(hours=1)}
    assert [one.event_id for one in client.deliveries.each(limit=1, **of_it)] == both
    assert [one.event_id for one in client.attempts.each(limit=1, **of_it)] == both
    (one,) = client.deliveries.page(state="delivered", event_type=event_type)
    assert (one.event_id, one.endpoint_name) == (delivered.event_id, "shop")
    (attempt,) = client.attempts.page(state="failed", error_code="SERVICE_UNAVAILABLE", event_type=event_type)
    assert (attempt.event_id, attempt.response_code, attempt.number) == (failed.event_id, 500, 1)


def test_the_retry_queue_is_listed_retried_and_skipped(client: Client, receiver: Receiver, event_type: str) -> None:
    receiver.status = 500
    client.endpoints.create(name=unused("shop"), url=receiver.url, event_types=[event_type], policy=[3600])
    receipt = client.send(event_type, 1)
    (waiting,) = wait_for(lambda: client.retry_queue.page(event_type=event_type).items or None)
    assert (waiting.event_id, waiting.retry_count, waiting.error) == (receipt.event_id, "0 / 1", "SERVICE_UNAVAILABLE")
    assert client.retry_queue.skip(waiting.delivery_id, reason="not worth it").state == "dead"
    receiver.status = 200
    assert len(client.events.retry(receipt.event_id).retried) == 1
    client.wait_for_delivery(receipt.event_id)


# -- bulk calls ------------------------------------------------------------------------------------------------


def test_many_dead_letters_are_counted_retried_and_waited_for(
    client: Client, receiver: Receiver, event_type: str
) -> None:
    dead_letter(client, receiver, event_type)
    receipts = client.send_many(_events(event_type, 4))
    for receipt in receipts:
        with pytest.raises(DeliveryFailed):
            client.wait_for_delivery(receipt.event_id)
    these = Selection.where(event_type=event_type)
    preview = client.dead_letters.preview(these)
    assert (preview.count, preview.count_is_floor, [one.count for one in preview.endpoints]) == (5, False, [5])
    receiver.status = 200
    looks = []
    bulk = client.dead_letters.bulk_retry(these, reason="mended")
    ended = client.bulk.wait(bulk.bulk_id, timeout=PATIENCE_SECONDS, on_progress=looks.append)
    assert (ended.state, ended.succeeded, ended.failed, ended.progress) == ("finished", 5, 0, "5/5 succeeded, 0 failed")
    assert looks[-1] == ended
    assert bulk.bulk_id in [one.bulk_id for one in client.bulk.each(limit=1)]
    assert len(client.bulk.failures(bulk.bulk_id)) == 0
    with pytest.raises(Conflict):
        client.bulk.cancel(bulk.bulk_id)


def test_an_empty_selection_is_refused_with_the_explicit_form(client: Client) -> None:
    with pytest.raises(Invalid, match='"all": ?true'):
        client.retry_queue.bulk_skip(Selection.where())


def test_the_events_of_a_time_are_replayed_to_an_endpoint(client: Client, receiver: Receiver, event_type: str) -> None:
    client.send_many(_events(event_type, 3))
    endpoint = client.endpoints.create(name="late", url=receiver.url, event_types=[f"{event_type}.none"])
    now = datetime.now(UTC)
    span = {"created_from": now - timedelta(minutes=5), "created_before": now + timedelta(minutes=5)}
    preview = client.endpoints.preview_replay(endpoint.endpoint_id, event_type=event_type, **span)
    assert preview.count == 3
    bulk = client.endpoints.replay(endpoint.endpoint_id, event_type=event_type, **span)
    client.bulk.wait(bulk.bulk_id, timeout=PATIENCE_SECONDS)
    assert wait_for(lambda: len(receiver.received) == 3)


# -- permissions -----------------------------------------------------------------------------------------------


def test_keys_are_made_used_and_revoked(client: Client, served: Program) -> None:
    made = client.keys.create("a viewer", "viewer")
    assert made.key_id in [one.key_id for one in client.keys.each()]
    with Client(served.url, made.key) as viewer:
        viewer.events.page(limit=1)
        with pytest.raises(Forbidden):
            viewer.send("order.paid", 1)
        client.keys.revoke(made.key_id)
        with pytest.raises(Unauthenticated):
            wait_for(lambda: viewer.events.page(limit=1) and None)


def test_an_organization_is_made_with_a_key_that_works_and_sees_nothing_of_others(
    client: Client, served: Program, event_type: str
) -> None:
    receipt = client.send(event_type, 1)
    made = client.orgs.create(event_type)
    assert made.org_id in [one.org_id for one in client.orgs.each()]
    with Client(served.url, made.admin_key.key) as other:
        assert other.send(event_type, 1).status == "received"
        with pytest.raises(NotFound):
            other.events.status(receipt.event_id)


def test_what_was_done_is_in_the_audit_log(client: Client, receiver: Receiver, event_type: str) -> None:
    endpoint = client.endpoints.create(name=event_type, url=receiver.url, event_types=[event_type])
    client.endpoints.pause(endpoint.endpoint_id, reason=event_type)
    (line,) = [one for one in client.audit.page(limit=50) if one.reason == event_type]
    assert str(endpoint.endpoint_id) in line.subjects


def test_it_tells_how_it_is(client: Client, served: Program) -> None:
    with Client(served.url) as anyone:
        assert (anyone.health().status, anyone.ready().status) == ("ok", "ok")
        assert "doorstep_" in anyone.metrics()
        with pytest.raises(Unauthenticated):
            anyone.stats()
    assert client.stats().deliveries


def test_a_refusal_names_the_field(client: Client) -> None:
    with pytest.raises(Invalid) as raised:
        client.events.page(limit=0)
    assert [error.field for error in raised.value.errors] == ["limit"]
    assert raised.value.correlation_id


def _event(event_type: str) -> NewEvent:
    return NewEvent(event_type=event_type, payload={"order": 1})


def _events(event_type: str, count: int) -> list[NewEvent]:
    return [_event(event_type) for _ in range(count)]
