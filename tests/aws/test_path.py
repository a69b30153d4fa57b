"""The whole path on an emulator of AWS: functions from their packages, called by the queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from doorstep.encryption import new_secret_key
from tests.aws.packages import ROOT, built
from tests.aws.stack import ADMIN_KEY, Stack, until
from tests.support import ministack
from tests.support.receiver import Receiver, receiving

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all tests of this module, because starting the functions takes longer than the tests."""
    packages = built()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ministack.CREDENTIALS.items():
            patch.setenv(name, value)
        for endpoint in ministack.serving(tmp_path_factory.mktemp("path")):
            made = Stack(endpoint, packages, ENVIRON | {"DOORSTEP_SECRET_KEY": new_secret_key()})
            asyncio.run(made.open())
            yield made


ENVIRON = {
    "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
    "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
    "DOORSTEP_SERVICE_NAME": "triggers",
    "RETRY_DELAYS": "1,1,1",
    "MAX_RETRY_ATTEMPTS": "3",
    "LOG_LEVEL": "info",
    "APP_MODULE": "examples.triggers:app",
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as listening:
        yield listening


def test_events_pass_the_functions_the_queue_and_the_table(stack: Stack, receiver: Receiver) -> None:
    """One story of the triggers profile: delivered, in the inbox, failed after its retries, repaired."""
    stack.create_endpoint("leads", receiver)

    delivered = stack.send("leads")
    until(lambda: stack.status(delivered)["status"] == "delivered", "the event is delivered")
    assert len(receiver.received) == 1

    waiting = stack.send("forms")  # no endpoint takes it
    inbox = stack.ask("GET", "/v1/inbox")["events"]
    assert [(one["event_id"], one["status"], one["payload"]) for one in inbox] == [(waiting, "received", {"n": 1})]

    receiver.status = 503
    failed = stack.send("leads")
    until(lambda: stack.status(failed)["status"] == "failed", "the event fails")
    status = stack.status(failed)
    assert (status["retry_attempts"], status["next_retry_at"]) == (3, None)
    assert status["failed_at"] is not None
    assert len(receiver.received) == 1 + 4
    inbox = stack.ask("GET", "/v1/inbox?status=failed")["events"]
    assert [one["event_id"] for one in inbox] == [failed]

    receiver.status = 200
    stack.ask("POST", f"/v1/events/{failed}/retry", {"reason": "repaired"})
    until(lambda: stack.status(failed)["status"] == "delivered", "the retried event is delivered")

    moves = [
        (line["old_status"], line["new_status"])
        for function in ("api", "delivery")
        for line in stack.lines(function)
        if line["event"] == "status_transition" and line["event_id"] == failed
    ]
    life = stack.query(query_of_a_life().replace("EVENT_ID", failed))
    logged = [line for function in ("api", "delivery") for line in stack.lines(function) if failed in str(line)]
    assert sorted(map(str, life)) == sorted(map(str, logged))  # nothing is missing, nothing is of another event
    assert moves == [
        *((None, "received"), ("failed", "queued")),  # the API
        *(("received", "queued"), ("queued", "failed"), ("queued", "delivered")),  # deliveries
    ]
    assert sum(stack.metric("EventsCreated")) == 3
    assert sum(stack.metric("EventsDelivered")) == 2
    assert sum(stack.metric("EventsFailed")) == 1
    assert sum(stack.metric("EventsQueued")) == 0
    assert sum(stack.metric("EventsReceived")) == 1
    assert stack.metric("RetryAttempts") == [0, 3, 0]


def test_a_lost_message_is_made_up_for_by_the_sweeper(stack: Stack, receiver: Receiver) -> None:
    stack.create_endpoint("orders", receiver)
    stack.call_functions(False)
    event_id = stack.send("orders")
    stack["sqs"].purge_queue(QueueUrl=stack.queue)
    assert stack.messages(stack.queue) == 0
    stack.call_functions(True)
    sent = [stack.invoke("sweeper", {})["messages"]]
    assert sent == [0]  # it was due a moment ago, so its message may be on its way
    until(lambda: sent.append(stack.invoke("sweeper", {})["messages"]) or sent[-1], "a sweep finds the delivery")
    until(lambda: stack.status(event_id)["status"] == "delivered", "the event is delivered")
    assert len(receiver.received) == 1


def test_a_poisoned_message_ends_in_the_dead_letter_queue_and_its_neighbour_is_delivered(
    stack: Stack, receiver: Receiver
) -> None:
    stack.create_endpoint("bills", receiver)
    stack["sqs"].send_message(QueueUrl=stack.queue, MessageBody="not a message of Doorstep")
    event_id = stack.send("bills")
    until(lambda: stack.messages(stack.dead_letters) == 1, "the message is set aside")
    until(lambda: stack.status(event_id)["status"] == "delivered", "the event is delivered")
    notices = [line for line in stack.lines("delivery") if line["event"] == "notice" and "receive_count" in line]
    assert [line["receive_count"] for line in notices] == [1, 2, 3, 4, 5]


def query_of_a_life() -> str:
    """The first query of the guide, which shows everything about one event."""
    found = re.search(r"```text\n(.*?)```", (ROOT / "docs" / "how-to" / "aws.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]
