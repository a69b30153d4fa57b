"""The sandbox: a program's own Doorstep, drained by the test without real waiting."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from uuid import UUID

import aiosqlite
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from doorstep import Doorstep, Entity, Gate, Permanent, Pipeline, Received, Stage, Transient
from doorstep.app import DEFAULT_ORG
from doorstep.errors import InvalidInput, NotFound
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import DeadLetterFilter
from doorstep.testing import Answer, Receiver, Request, dead, ok, reset, sandbox, scripted, slow, status
from tests.support.builders import new_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import count_states
from tests.support.stretching import stretched


class Shop:
    """A program with one handler, which first raises the failures that the test lists."""

    def __init__(self, database_url: str = "memory://") -> None:
        self.doorstep = Doorstep(database_url)
        self.failures: list[Exception] = []
        self.shipped: list[Received] = []
        self.doorstep.handler("order.*", policy="patient")(self.ship)

    async def ship(self, received: Received) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.shipped.append(received)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# -- time --------------------------------------------------------------------------------------------------------------


async def test_nothing_is_tried_until_it_is_drained(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.send("order.paid", {"order": 42})
        assert shop.shipped == []
        await box.drain()
        assert [received.json() for received in shop.shipped] == [{"order": 42}]


async def test_a_drain_does_what_is_due_now_and_leaves_what_is_due_later(shop: Shop) -> None:
    shop.failures = [Transient("BUSY")]
    async with sandbox(shop.doorstep) as box:
        receipt = await shop.doorstep.send("order.paid", {})
        began = box.clock.now()
        await box.drain()
        (delivery,) = box.deliveries(receipt)
        assert (delivery.state, delivery.due_at) == (DeliveryState.PENDING, began + 5_000_000)
        box.clock.advance(4.9)
        await box.drain()
        assert shop.shipped == []
        box.clock.advance(0.1)
        await box.drain()
        assert len(shop.shipped) == 1


async def test_a_drain_until_leaps_from_due_time_to_due_time_and_ends_where_it_was_told(shop: Shop) -> None:
    shop.failures = [Transient("BUSY"), Transient("BUSY"), Transient("BUSY")]
    async with sandbox(shop.doorstep) as box:
        began = box.clock.now()
        receipt = await shop.doorstep.send("order.paid", {})
        await box.drain(until=86_400)
        box.assert_delivered(receipt)
        starts = [(attempt.started_at - began) // 1_000_000 for attempt in box.attempts(receipt)]
        assert starts == [0, 5, 305, 2_105], "exactly the delays of the policy: a sandbox has no jitter"
        assert box.clock.now() == began + 86_400_000_000


async def test_a_handler_with_three_retries_over_hours_is_tested_in_less_than_fifty_milliseconds(shop: Shop) -> None:
    durations = []
    for _ in range(5):
        shop.failures = [Transient("BUSY"), Transient("BUSY"), Transient("BUSY")]
        began = time.perf_counter()
        async with sandbox(shop.doorstep) as box:
            receipt = await shop.doorstep.send("order.paid", {})
            await box.drain(until=4 * 3_600)
            box.assert_delivered(receipt)
        durations.append(time.perf_counter() - began)
    assert min(durations) < stretched(0.05)


async def test_what_handlers_send_is_drained_as_well() -> None:
    doorstep = Doorstep("memory://")
    seen = []

    @doorstep.handler("order.paid")
    async def pay(_: Received) -> None:
        await doorstep.send("order.shipped", {})

    @doorstep.handler("order.shipped")
    def ship(received: Received) -> None:
        doorstep.send_sync("letter.written", {"about": str(received.event_id)})

    @doorstep.handler("letter.*")
    def write(received: Received) -> None:
        seen.append(received.event_type)

    async with sandbox(doorstep) as box:
        await doorstep.send("order.paid", {})
        await box.drain()
        assert seen == ["letter.written"]


async def test_a_handler_that_keeps_itself_busy_is_told_so() -> None:
    doorstep = Doorstep("memory://")

    @doorstep.handler("echo")
    async def echo(_: Received) -> None:
        await doorstep.send("echo", {})

    async with sandbox(doorstep) as box:
        await doorstep.send("echo", {})
        with pytest.raises(AssertionError, match="does a handler send events that it handles itself"):
            await box.drain()


async def test_after_its_retention_a_delivered_event_is_cleaned_away_and_still_counts_as_sent(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.send("order.paid", {})
        await box.drain(until=8 * 86_400)
        assert await count_states(shop.doorstep.components.store) == dict.fromkeys(DeliveryState, 0)
        box.assert_sent("order.paid", count=1)


# -- what the sandbox replaces -----------------------------------------------------------------------------------------


async def test_a_sandbox_touches_neither_the_database_nor_the_disk_of_the_program(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/data/app.db")
    async with sandbox(shop.doorstep) as box:
        receipt = await shop.doorstep.send("order.paid", {})
        await box.drain()
        box.assert_delivered(receipt)
    assert list(tmp_path.iterdir()) == []


async def test_afterwards_the_doorstep_is_as_it_was_and_what_was_sent_is_forgotten(shop: Shop) -> None:
    before = dict(vars(shop.doorstep))
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.send("order.paid", {})
        shop.doorstep.register("more", shop.ship)
        box.assert_sent("order.paid")
    assert vars(shop.doorstep) == before
    async with sandbox(shop.doorstep) as box:
        box.assert_nothing_sent()
        assert [endpoint.name for endpoint in await shop.doorstep.endpoints()] == ["ship"]


async def test_a_program_that_opens_its_doorstep_itself_is_not_started_in_a_sandbox(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        async with shop.doorstep:
            receipt = await shop.doorstep.send("order.paid", {})
        await box.drain()
        box.assert_delivered(receipt)


async def test_a_doorstep_that_is_at_work_already_goes_on_afterwards(shop: Shop) -> None:
    async with shop.doorstep:
        async with sandbox(shop.doorstep) as box:
            await shop.doorstep.send("order.paid", {"sent": "in the sandbox"})
            await box.drain()
        await shop.doorstep.send("order.paid", {"sent": "for real"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(shop.shipped) < 2:
                await asyncio.sleep(0)
        assert [received.json()["sent"] for received in shop.shipped] == ["in the sandbox", "for real"]


async def test_an_exception_in_the_test_gives_the_doorstep_back_all_the_same(shop: Shop) -> None:
    before = dict(vars(shop.doorstep))
    with pytest.raises(KeyError):
        async with sandbox(shop.doorstep):
            raise KeyError
    assert vars(shop.doorstep) == before


async def test_a_doorstep_that_cannot_be_opened_is_given_back_as_well(shop: Shop) -> None:
    shop.doorstep.handler("order.*", name="wrong", org_id=new_id())(shop.ship)
    before = dict(vars(shop.doorstep))
    with pytest.raises(NotFound):
        async with sandbox(shop.doorstep):
            pass
    assert vars(shop.doorstep) == before


async def test_bulk_operations_go_on_while_time_passes(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        shop.failures = [Permanent("NO") for _ in range(5)]
        sent = [await shop.doorstep.send("order.paid", {"order": number}) for number in range(5)]
        await box.drain()
        everything = Selection(letters=DeadLetterFilter())
        bulk = await shop.doorstep.components.bulk.start(
            BulkKind.RETRY, DEFAULT_ORG, everything, "ops", rate_per_second=1
        )
        await box.drain(until=30)
        assert (await shop.doorstep.components.store.get(Bulk, DEFAULT_ORG, bulk.bulk_id)).succeeded == 5
        for one in sent:
            box.assert_delivered(one)


def test_a_program_without_an_event_loop_has_a_sandbox_too(shop: Shop) -> None:
    shop.failures = [Transient("BUSY")]
    with sandbox(shop.doorstep) as box:
        receipt = shop.doorstep.send_sync("order.paid", {"order": 42})
        box.assert_sent("order.paid", {"order": 42})
        box.drain(until=60)
        box.assert_delivered(receipt)
        assert len(box.attempts(receipt)) == 2


async def test_what_is_sent_on_a_connection_counts_as_sent_at_once_and_is_delivered_by_the_drain(shop: Shop) -> None:
    """The sandbox ignores whether the transaction commits: it does not use the program's database."""
    async with sandbox(shop.doorstep) as box:
        with sqlite3.connect(":memory:") as connection:
            posted = shop.doorstep.send_sync("order.paid", {"order": 42}, connection=connection)
        box.assert_sent("order.paid", {"order": 42}, count=1)
        with pytest.raises(AssertionError, match=r"it waits in the outbox \(has it been drained\?\)"):
            box.assert_delivered(posted)
        await box.drain()
        box.assert_delivered(posted)
        box.assert_sent("order.paid", count=1)


async def test_those_who_want_to_hear_of_dead_letters_do_and_only_those_of_the_program(shop: Shop) -> None:
    heard: list[str] = []
    shop.doorstep.on_dead_letter(lambda letter: heard.append(letter.code))
    async with sandbox(shop.doorstep) as box:
        shop.doorstep.on_dead_letter(lambda letter: heard.append("added by a test"))
        shop.failures = [Permanent("GONE_FISHING")]
        await shop.doorstep.send("order.paid", {})
        await box.drain()
        assert sorted(heard) == ["GONE_FISHING", "added by a test"]
    heard.clear()
    async with sandbox(shop.doorstep) as box:
        shop.failures = [Permanent("GONE_FISHING")]
        await shop.doorstep.send("order.paid", {})
        await box.drain()
        assert heard == ["GONE_FISHING"]


async def test_a_pipeline_goes_through_its_stages_in_a_sandbox() -> None:
    doorstep = Doorstep("memory://")
    papers = Pipeline(
        "paper",
        first="uploaded",
        stages=[Stage("reading", failed="unread"), Gate("review")],
        last="done",
        policy=(0, 0),
    )
    doorstep.add(papers)

    @papers.stage("reading")
    async def read(entity: Entity) -> dict[str, object]:
        return {**entity.data, "words": 3}

    async with sandbox(doorstep) as box:
        paper = await papers.start({"text": "one two three"})
        await box.drain()
        assert (await papers.entity(paper.entity_id)).status == "review"


# -- receivers ---------------------------------------------------------------------------------------------------------


async def test_without_a_network_receivers_are_played(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.create_endpoint(
            name="partner", url="https://partner.example/in", event_types=("invoice.*",)
        )
        box.network.behaves(scripted([503, 200]), at="https://partner.example/in")
        receipt = await shop.doorstep.send("invoice.due", {"invoice": 7})
        await box.drain(until=60)
        box.assert_delivered(receipt)
        first, second = box.network.requests
        assert (first.path, first.json()) == ("/in", {"invoice": 7})
        assert first.event_id == second.event_id == str(receipt.event_id)
        assert second.at - first.at == 5_000_000


@pytest.mark.parametrize(
    ("personality", "code"),
    [
        (dead, "TIMEOUT"),
        (slow(30), "TIMEOUT"),
        (reset, "CONNECTION"),
        (status(429), "RATE_LIMIT"),
        (status(422, body=b"no"), "INVALID_FORMAT"),
    ],
)
async def test_a_played_failure_has_the_code_of_a_real_one_and_takes_no_time(personality, code, shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.create_endpoint(name="partner", url="https://partner.example/", policy=[])
        box.network.behaves(personality)
        receipt = await shop.doorstep.send("invoice.due", {})
        await box.drain()
        box.assert_dead(receipt, code=code)


async def test_with_a_network_a_real_receiver_is_called_and_verifies_by_the_clock_of_the_sandbox(shop: Shop) -> None:
    with Receiver() as receiver:
        async with sandbox(shop.doorstep, network=True) as box:
            receiver.clock = box.clock
            url = receiver.url("/hook")
            _, secret = await shop.doorstep.create_endpoint(name="partner", url=url, event_types=("invoice.*",))
            receiver.verifies(secret)
            receiver.behaves(scripted([500, 200]))
            receipt = await shop.doorstep.send("invoice.due", {})
            await box.drain(until=3_600)
            box.assert_delivered(receipt)
            assert [request.flaw for request in receiver.requests] == ["", ""]
            assert receiver.requests[0].url == url


# -- assertions --------------------------------------------------------------------------------------------------------


async def test_a_failed_assertion_says_what_was_sent_instead(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        with pytest.raises(AssertionError, match="but 0 were; sent were:\n  nothing"):
            box.assert_sent("order.paid")
        await shop.doorstep.send("order.paid", {"order": 41})
        with pytest.raises(AssertionError) as failed:
            box.assert_sent("order.paid", payload={"order": 42})
        assert str(failed.value) == (
            "at least one event of type order.paid with payload {'order': 42} should have been sent, but 0 were; "
            'sent were:\n  order.paid {"order":41}'
        )
        with pytest.raises(AssertionError, match=r"2 events of type order\.\* should have been sent, but 1 were"):
            box.assert_sent("order.*", count=2)
        with pytest.raises(AssertionError, match='should have been sent, but was:\n  order.paid {"order":41}'):
            box.assert_nothing_sent()
        box.assert_nothing_sent("invoice.*")


async def test_a_payload_is_compared_as_json_and_bytes_are_compared_as_bytes(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.send("order.paid", b'{ "order": 41 }')
        assert box.assert_sent("order.paid", {"order": 41}, count=1)[0].org_id == DEFAULT_ORG
        box.assert_sent("order.paid", b'{ "order": 41 }')
        with pytest.raises(AssertionError):
            box.assert_sent("order.paid", b'{"order":41}')


async def test_a_delivery_that_has_not_come_says_where_it_stands(shop: Shop) -> None:
    shop.failures = [Transient("BUSY", "the van is full")]
    async with sandbox(shop.doorstep) as box:
        receipt = await shop.doorstep.send("order.paid", {})
        with pytest.raises(
            AssertionError, match=r"to ship: pending after 0 attempts, due now \(has it been drained\?\)"
        ):
            box.assert_delivered(receipt)
        await box.drain()
        with pytest.raises(AssertionError, match="to ship: pending after 1 attempt, due in 5 s, BUSY: the van is full"):
            box.assert_delivered(receipt)
        with pytest.raises(AssertionError, match="has no dead letter:\n  to ship: pending"):
            box.assert_dead(receipt)


async def test_a_dead_letter_with_another_code_says_which(shop: Shop) -> None:
    shop.failures = [Permanent("INVALID_FORMAT", "no such street")]
    async with sandbox(shop.doorstep) as box:
        receipt = await shop.doorstep.send("order.paid", {})
        await box.drain()
        box.assert_dead(receipt)
        box.assert_dead(receipt, code="INVALID_FORMAT")
        with pytest.raises(AssertionError, match="no dead letter with code GONE:\n  to ship: dead .* no such street"):
            box.assert_dead(receipt, code="GONE")


async def test_an_event_that_nobody_takes_is_said_to_wait_in_the_inbox(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        receipt = await shop.doorstep.send("newsletter.sent", {})
        with pytest.raises(AssertionError, match="no endpoint subscribes to it: it waits in the inbox"):
            box.assert_delivered(receipt)
    async with sandbox(shop.doorstep) as box:
        with pytest.raises(AssertionError, match="was not sent in this sandbox"):
            box.assert_delivered(receipt)


# -- programs that open their Doorstep themselves ----------------------------------------------------------------------


def a_web_application(shop: Shop) -> FastAPI:
    """A web application that sends events from an async route and from a sync route."""
    application = FastAPI(lifespan=shop.doorstep.lifespan)

    @application.post("/orders")
    async def order() -> str:
        return str((await shop.doorstep.send("order.paid", {})).event_id)

    @application.post("/plain-orders")
    def plain_order() -> str:
        return str(shop.doorstep.send_sync("order.paid", {}).event_id)

    return application


def test_a_web_application_in_a_test_client_is_drained_with_all_that_it_declared(shop: Shop) -> None:
    heard: list[str] = []
    shop.doorstep.on_dead_letter(lambda letter: heard.append(letter.code))
    with sandbox(shop.doorstep) as box, TestClient(a_web_application(shop)) as client:
        assert client.post("/orders").is_success
        box.drain()
        assert len(shop.shipped) == 1
        shop.failures = [Permanent("GONE_FISHING")]
        assert client.post("/plain-orders").is_success
        box.drain()
        assert heard == ["GONE_FISHING"]


async def test_a_blocking_test_client_in_an_asyncio_test_does_not_hang(shop: Shop) -> None:
    heard: list[str] = []
    shop.doorstep.on_dead_letter(lambda letter: heard.append(letter.code))
    async with sandbox(shop.doorstep) as box:
        with TestClient(a_web_application(shop)) as client:
            assert client.post("/orders").is_success
            await box.drain()
            shop.failures = [Permanent("GONE_FISHING")]
            assert client.post("/plain-orders").is_success
        await box.drain()
        assert (len(shop.shipped), heard) == (1, ["GONE_FISHING"])


# -- what production refuses -------------------------------------------------------------------------------------------


async def test_a_sandbox_refuses_the_connections_that_production_refuses_and_keeps_nothing(shop: Shop) -> None:
    careless = sqlite3.connect(":memory:", isolation_level=None)
    async with sandbox(shop.doorstep) as box, aiosqlite.connect(":memory:", isolation_level=None) as careless_too:
        for wrong in ("shop.db", None, careless):
            with pytest.raises(InvalidInput, match="connection"):
                shop.doorstep.send_sync("order.paid", {}, connection=wrong)
        with pytest.raises(InvalidInput, match="must be in a transaction"):
            await shop.doorstep.send("order.paid", {}, connection=careless_too)
        box.assert_nothing_sent()
    careless.close()


async def test_what_is_sent_on_an_asyncio_connection_is_sent_when_it_is_awaited(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box, aiosqlite.connect(":memory:") as connection:
        sending = shop.doorstep.send("order.paid", {}, connection=connection)
        box.assert_nothing_sent()
        await sending
        box.assert_sent("order.paid", count=1)


# -- results -----------------------------------------------------------------------------------------------------------


async def test_what_was_delivered_stays_so_after_it_was_cleaned_away(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        delivered = await shop.doorstep.send("order.paid", {})
        unread = await shop.doorstep.send("newsletter.sent", {})
        await box.drain(until=400 * 86_400)
        box.assert_delivered(delivered)
        with pytest.raises(AssertionError, match="it was received when it was deleted, or removed"):
            box.assert_delivered(unread)
        with pytest.raises(AssertionError, match="it was delivered when it was deleted, or removed"):
            box.assert_dead(delivered)


async def test_what_was_rejected_still_counts_as_sent_and_says_why(shop: Shop) -> None:
    stranger = UUID(int=7)
    async with sandbox(shop.doorstep) as box:
        with sqlite3.connect(":memory:") as connection:
            wrong = shop.doorstep.send_sync(
                "order.paid", {}, connection=connection, endpoint_ids=[stranger], metadata={"a": 1}
            )
            lost = shop.doorstep.send_sync("order.paid", {}, connection=connection, org_id=stranger)
        await box.drain()
        assert box.assert_sent("order.paid", count=2)[0].metadata == b'{"a":1}'
        for one in (wrong, lost):
            with pytest.raises(AssertionError, match=f"it was rejected: .*{stranger}"):
                box.assert_delivered(one)


async def test_a_personality_that_raises_is_told_at_the_end_of_the_drain_and_the_next_one_goes_on(shop: Shop) -> None:
    def broken(_: Request) -> Answer:
        raise KeyError("oops")

    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.create_endpoint(name="partner", url="https://partner.example/", event_types=("invoice.*",))
        box.network.behaves(broken)
        receipt = await shop.doorstep.send("invoice.due", {})
        with pytest.raises(KeyError, match="oops"):
            await box.drain()
        box.network.behaves(ok)
        await box.drain(until=3_600)
        box.assert_delivered(receipt)


async def test_events_for_the_log_are_delivered_in_the_sandbox_too(shop: Shop) -> None:
    async with sandbox(shop.doorstep) as box:
        await shop.doorstep.create_endpoint(name="look", destination={"kind": "log"}, event_types=("invoice.*",))
        receipt = await shop.doorstep.send("invoice.due", {})
        await box.drain()
        box.assert_delivered(receipt)
