"""Operator commands for one delivery, for several, for all that match a filter, and for all deliveries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Remote
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver, receiving

numbers = itertools.count()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program for this module alone, because these commands act on all deliveries."""
    with serving(tmp_path_factory.mktemp("operators")) as it:
        yield it


@pytest.fixture
def remote(program: Program) -> Remote:
    return Remote(program)


@pytest.fixture
def event_type() -> str:
    return f"ops{next(numbers)}.happened"


def fail(remote: Remote, receiver: Receiver, event_type: str, count: int, queue: str) -> list[str]:
    """Create this many deliveries whose first attempt failed: permanently for `dead-letters`."""
    receiver.status = 404 if queue == "dead-letters" else 503
    arguments = ("--type", event_type, "--policy", "carrier", "--circuit-failures", "1000")
    remote.json("endpoints", "create", event_type, receiver.url, *arguments)
    for number in range(count):
        remote.json("send", event_type, f'{{"n": {number}}}')
    name = "dead_letters" if queue == "dead-letters" else "deliveries"

    def failed() -> list[str] | None:
        rows = remote.json(queue, "list", "--type", event_type)[name]
        found = [row["delivery_id"] for row in rows if row["state"] in ("dead", "pending")]
        return found if len(found) == count else None

    return wait_for(failed)


def states(remote: Remote, delivery_ids: list[str]) -> list[str]:
    return [remote.json("deliveries", "show", one)["state"] for one in delivery_ids]


def dead_of(remote: Remote, event_type: str) -> list[dict[str, Any]]:
    return list(remote.json("dead-letters", "list", "--type", event_type)["dead_letters"])


def test_one_dead_letter_is_retried_and_delivered(remote: Remote, receiver: Receiver, event_type: str) -> None:
    (letter,) = fail(remote, receiver, event_type, 1, "dead-letters")
    receiver.status = 200
    assert remote.json("dead-letters", "retry", letter, "--reason", "mended")["state"] == "pending"
    wait_for(lambda: states(remote, [letter]) == ["delivered"])


def test_a_dead_letter_is_retried_with_another_payload(
    remote: Remote, receiver: Receiver, event_type: str, tmp_path: Path
) -> None:
    (letter,) = fail(remote, receiver, event_type, 1, "dead-letters")
    receiver.status = 200
    (tmp_path / "corrected.json").write_text('{"n":  1.0}')
    remote.json("dead-letters", "retry", letter, "--payload", f"@{tmp_path}/corrected.json")
    wait_for(lambda: states(remote, [letter]) == ["delivered"])
    assert receiver.received[-1].body == b'{"n":  1.0}'


def test_all_that_match_are_retried_as_one_operation_and_watched_to_the_end(
    remote: Remote, receiver: Receiver, event_type: str
) -> None:
    letters = fail(remote, receiver, event_type, 5, "dead-letters")
    receiver.status = 200
    preview = remote.json("dead-letters", "retry", "--type", event_type, "--preview")
    assert (preview["count"], preview["endpoints"][0]["endpoint_name"]) == (5, event_type)
    ended = remote.json("dead-letters", "retry", "--type", event_type, "--yes")
    assert (ended["state"], ended["succeeded"], ended["failed"]) == ("finished", 5, 0)
    assert set(states(remote, letters)) == {"delivered"}


def test_a_bulk_operation_in_which_something_failed_ends_with_one(
    remote: Remote, receiver: Receiver, event_type: str
) -> None:
    letters = fail(remote, receiver, event_type, 2, "dead-letters")
    ended = remote("dead-letters", "retry", *letters)
    assert ended.code == 1
    assert "0/2 succeeded, 2 failed" in ended.out
    bulk_id = ended.out.split()[0]
    failures = remote.json("bulk", "failures", bulk_id)["deliveries"]
    assert {row["delivery_id"] for row in failures} == set(letters)


def test_a_cause_is_resolved_as_a_whole(remote: Remote, receiver: Receiver, event_type: str) -> None:
    letters = fail(remote, receiver, event_type, 3, "dead-letters")
    (cause,) = {letter["cause"] for letter in dead_of(remote, event_type)}
    groups = {row["cause"]: row["count"] for row in remote.json("dead-letters", "groups")["groups"]}
    assert groups[cause] == 3
    remote.json("dead-letters", "resolve", "--cause", cause, "--yes", "--reason", "done by hand")
    assert set(states(remote, letters)) == {"resolved"}
    assert dead_of(remote, event_type) == []


def test_deleted_dead_letters_leave_their_log(remote: Remote, receiver: Receiver, event_type: str) -> None:
    one, *others = fail(remote, receiver, event_type, 3, "dead-letters")
    assert remote.json("dead-letters", "delete", one, "--yes")["deleted"] is True
    remote.json("dead-letters", "delete", *others, "--yes")
    assert dead_of(remote, event_type) == []
    assert len(remote.json("deliveries", "attempts", one)["attempts"]) == 1


def test_the_retry_queue_is_retried_now(remote: Remote, receiver: Receiver, event_type: str) -> None:
    first, *others = fail(remote, receiver, event_type, 3, "retry-queue")
    receiver.status = 200
    remote.json("retry-queue", "retry", first)
    wait_for(lambda: states(remote, [first]) == ["delivered"])
    assert remote.json("retry-queue", "retry", "--type", event_type, "--yes")["succeeded"] == 2
    assert set(states(remote, others)) == {"delivered"}


def test_what_is_skipped_moves_to_the_dead_letters(remote: Remote, receiver: Receiver, event_type: str) -> None:
    one, *others = fail(remote, receiver, event_type, 3, "retry-queue")
    remote.json("retry-queue", "skip", one, "--yes")
    remote.json("retry-queue", "skip", "--endpoint", event_type, "--yes")
    assert set(states(remote, [one, *others])) == {"dead"}


def test_a_bulk_operation_is_begun_paused_resumed_and_cancelled(
    remote: Remote, receiver: Receiver, event_type: str
) -> None:
    fail(remote, receiver, event_type, 4, "dead-letters")
    begun = remote.json("dead-letters", "retry", "--type", event_type, "--rate", "0.01", "--yes", "--no-wait")
    bulk_id = begun["bulk_id"]
    assert remote.json("bulk", "pause", bulk_id)["state"] == "paused"
    assert remote.json("bulk", "resume", bulk_id)["state"] == "running"
    assert remote.json("bulk", "cancel", bulk_id)["state"] == "cancelled"
    assert remote("bulk", "resume", bulk_id).code == 4
    assert remote("bulk", "watch", bulk_id).code == 1
    assert bulk_id in remote("bulk", "list").out
    assert remote.json("bulk", "show", bulk_id)["state"] == "cancelled"


def test_a_delivery_whose_state_does_not_allow_it_is_four(remote: Remote, receiver: Receiver, event_type: str) -> None:
    (letter,) = fail(remote, receiver, event_type, 1, "dead-letters")
    remote.json("dead-letters", "resolve", letter)
    ended = remote("dead-letters", "retry", letter)
    assert ended.code == 4
    assert "resolved" in ended.err


def test_nobody_to_ask_means_no(remote: Remote, receiver: Receiver, event_type: str) -> None:
    letters = fail(remote, receiver, event_type, 2, "dead-letters")
    ended = remote("dead-letters", "delete", "--type", event_type)
    assert ended.code == 2
    assert "--yes" in ended.err
    assert set(states(remote, letters)) == {"dead"}


def test_no_dead_letters_is_good_news(tmp_path: Path) -> None:
    with serving(tmp_path) as fresh:
        remote = Remote(fresh)
        for command in ("list", "groups"):
            assert remote("dead-letters", command).err == "No failed events. All integrations healthy.\n"
        assert remote("dead-letters", "list", "--type", "order.*").err == "No dead letters for this filter.\n"
        assert remote("events", "list", "--status", "failed").err == "No events for this filter.\n"
        assert remote("retry-queue", "list").err == "No deliveries wait for a retry.\n"


def test_without_dead_letters_nobody_is_told_that_all_is_healthy_while_a_delivery_waits_for_its_retry(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as fresh, receiving() as receiver:
        receiver.status = 503
        fresh.post("/v1/endpoints", {"name": "down", "url": receiver.url, "policy": {"delays": [3600]}})
        fresh.post("/v1/events", {"event_type": "order.paid", "payload": 1})
        remote = Remote(fresh)
        wait_for(lambda: remote.json("retry-queue", "list")["deliveries"])
        for command in ("list", "groups"):
            assert remote("dead-letters", command).err == "No dead letters.\n"
