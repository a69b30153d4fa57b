"""Commands that call a server, run against a running one."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from doorstep.policy.retry import BUILT_IN
from tests.support.commands import Remote, doorstep
from tests.support.matrix import each_case
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, Program, running, wait_for
from tests.support.receiver import Receiver

numbers = itertools.count()


@pytest.fixture
def remote(served: Program) -> Remote:
    return Remote(served)


@pytest.fixture
def event_type() -> str:
    """An event type that no other test uses."""
    return f"cli{next(numbers)}.happened"


@pytest.fixture
def shop(remote: Remote, receiver: Receiver, event_type: str) -> dict[str, Any]:
    """An endpoint that receives this test's events and makes only one attempt."""
    made = remote.json(
        "endpoints", "create", f"shop-{event_type}", receiver.url, "--type", event_type, "--give-up-on", "5xx"
    )
    assert made["secret"].startswith("whsec_")
    return dict(made)


# -- sending and looking ---------------------------------------------------------------------------------------


def test_what_is_sent_arrives_byte_for_byte(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str, tmp_path: Path
) -> None:
    payload = '{"z": 1.50, "a":  [1, 2 ,3]}'
    (tmp_path / "payload.json").write_text(payload + "\n")
    remote("send", event_type, payload)
    remote("send", event_type, f"@{tmp_path}/payload.json")
    remote("send", event_type, stdin=payload.encode())
    remote("send", event_type, "-", stdin=payload.encode())
    wait_for(lambda: len(receiver.received) == 4)
    assert {one.body for one in receiver.received} == {payload.encode()}


def test_send_waits_for_the_delivery_if_asked(remote: Remote, shop: dict[str, Any], event_type: str) -> None:
    assert remote.json("send", event_type, "{}", "--wait")["status"] == "delivered"


def test_waiting_for_what_fails_ends_with_one(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str
) -> None:
    receiver.status = 500
    ended = remote("send", event_type, "{}", "--wait", "--json")
    assert ended.code == 1
    assert ended.lines[0]["status"] == "failed"


def test_waiting_ends_when_the_time_is_up(remote: Remote, event_type: str) -> None:
    sent = remote.json("send", event_type, "{}")
    ended = remote("status", sent["event_id"], "--wait", "--timeout", "200ms", "--json")
    assert (ended.code, ended.lines[0]["status"]) == (1, "received")


def test_the_status_has_exactly_the_promised_fields(remote: Remote, event_type: str) -> None:
    sent = remote.json("send", event_type, "{}")
    found = remote.json("status", sent["event_id"])
    assert set(found) == {
        "event_id",
        "status",
        "retry_attempts",
        "last_retry_at",
        "failed_at",
        "next_retry_at",
    }


def test_an_event_is_stored_once_for_one_idempotency_key(remote: Remote, event_type: str) -> None:
    first, second = (remote.json("send", event_type, "{}", "--idempotency-key", event_type) for _ in range(2))
    assert first["event_id"] == second["event_id"]


def test_events_are_listed_and_shown(remote: Remote, shop: dict[str, Any], event_type: str) -> None:
    sent = [remote.json("send", event_type, f'{{"n": {n}}}', "--wait")["event_id"] for n in range(3)]
    listed = remote.json("events", "list", "--type", event_type, "--status", "delivered", "--since", "1h")
    assert [one["event_id"] for one in listed["events"]] == sent[::-1]
    shown = remote.json("events", "show", sent[1])
    assert shown["payload"] == {"n": 1}
    assert [one["endpoint_id"] for one in shown["deliveries"]] == [shop["endpoint_id"]]
    table = remote("events", "list", "--type", event_type).out
    assert all(event_id in table for event_id in sent)


def test_a_list_goes_on_where_the_last_one_ended(remote: Remote, event_type: str) -> None:
    sent = [remote.json("send", event_type, "{}")["event_id"] for _ in range(3)]
    first = remote.json("events", "list", "--type", event_type, "-n", "2")
    assert first["pagination"]["has_more"]
    rest = remote.json("events", "list", "--type", event_type, "--cursor", first["pagination"]["cursor"])
    assert [one["event_id"] for one in first["events"] + rest["events"]] == sent[::-1]


def test_a_delivery_shows_its_attempts_and_its_history(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str
) -> None:
    receiver.status = 503
    remote("send", event_type, "{}", "--wait")
    letter = remote.json("dead-letters", "list", "--type", event_type)["dead_letters"][0]
    attempts = remote.json("deliveries", "attempts", letter["delivery_id"])["attempts"]
    assert [(one["number"], one["response_code"]) for one in attempts] == [(1, 503)]
    states = [one["new_state"] for one in remote.json("deliveries", "history", letter["delivery_id"])["history"]]
    assert states == ["pending", "in_progress", "dead"]
    assert remote.json("deliveries", "show", letter["delivery_id"])["state"] == "dead"


def test_the_inbox_is_fetched_and_acknowledged(remote: Remote, event_type: str) -> None:
    sent = remote.json("send", event_type, '{"for": "the inbox"}')
    waiting = remote.json("inbox", "list", "-n", "10000")["events"]
    assert [one["payload"] for one in waiting if one["event_id"] == sent["event_id"]] == [{"for": "the inbox"}]
    assert remote.json("inbox", "ack", sent["event_id"])["status"] == "delivered"


def test_the_inbox_is_leased_acknowledged_and_given_back(remote: Remote, event_type: str) -> None:
    sent = [remote.json("send", event_type, "{}")["event_id"] for _ in range(2)]
    shown = remote("inbox", "lease", "--type", event_type, "--limit", "1", "--visibility", "5m")
    assert (shown.code, sent[0] in shown.out, sent[1] in shown.out) == (0, True, False)
    (leased,) = remote.json("inbox", "lease", "--type", event_type)["events"]
    assert (leased["event_id"], leased["lease_token"]) == (sent[1], 1)
    assert "No event can be leased." in remote("inbox", "lease", "--type", event_type).err
    assert remote.json("inbox", "nack", sent[1], "--lease-token", "1") == {"event_id": sent[1], "status": "received"}
    assert remote.json("inbox", "lease", "--type", event_type)["events"][0]["receive_count"] == 2
    late = remote("inbox", "ack", sent[1], "--lease-token", "1")
    assert (late.code != 0, "was leased again" in late.err) == (True, True)
    assert remote.json("inbox", "ack", sent[1], "--lease-token", "2")["status"] == "delivered"
    assert remote("inbox", "nack", sent[0], "--delay", "1h").code == 0


def test_tail_tells_what_changes_and_only_that(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str, tmp_path: Path
) -> None:
    before = remote.json("send", event_type, "{}", "--wait")
    receiver.status = 503
    arguments = ("tail", "--type", event_type, "--interval", "100ms", "--json")
    with running(*arguments, folder=tmp_path, environment=remote.environment) as tail:
        wait_for(lambda: any("Following" in line for line in tail.err))
        sent = remote.json("send", event_type, "{}")
        wait_for(lambda: any('"dead_letter"' in line for line in tail.out))
        tail.signal(signal.SIGINT)
        assert tail.wait() == 0
    told = [json.loads(line) for line in tail.out]
    assert {one["event_id"] for one in told} == {sent["event_id"]} != {before["event_id"]}
    assert told[0]["what"] == "event"


# -- endpoints -------------------------------------------------------------------------------------------------


def test_an_endpoint_is_found_by_its_name_and_by_its_id(remote: Remote, shop: dict[str, Any]) -> None:
    by_name, by_id = (remote.json("endpoints", "show", words) for words in (shop["name"], shop["endpoint_id"]))
    assert by_name == by_id
    assert by_name["endpoint_id"] in remote("endpoints", "list").out


def test_an_endpoint_is_changed_in_what_is_given_only(remote: Remote, shop: dict[str, Any]) -> None:
    arguments = ("--policy", "5s,1m", "--timeout", "3s", "--header", "X-Team: shop", "--circuit-open", "1m")
    changed = remote.json("endpoints", "update", shop["name"], *arguments)
    assert changed["policy"]["delays"] == [5, 60]
    assert changed["timeout_seconds"] == 3
    assert changed["circuit"] == {**shop["circuit"], "open_seconds": 60}
    assert changed["event_types"] == shop["event_types"]
    assert remote.json("endpoints", "update", shop["name"], "--reset", "policy")["policy"] is None


def test_deliveries_and_attempts_of_an_endpoint_are_listed_by_its_name(
    remote: Remote, shop: dict[str, Any], event_type: str
) -> None:
    event_id = remote.json("send", event_type, "{}", "--wait")["event_id"]
    asked = ("--endpoint", shop["name"], "--type", event_type, "--since", "1h")
    listed = remote.json("deliveries", "list", *asked, "--state", "delivered")
    assert event_id in [one["event_id"] for one in listed["deliveries"]]
    assert remote.json("deliveries", "list", *asked, "--state", "dead")["deliveries"] == []
    assert remote.json("deliveries", "list", *asked, "--until", "1h")["deliveries"] == []
    tried = remote.json("attempts", "list", *asked, "--state", "succeeded")["attempts"]
    assert event_id in [one["event_id"] for one in tried]
    assert remote.json("attempts", "list", *asked, "--code", "TIMEOUT")["attempts"] == []
    assert "delivered" in remote("deliveries", "list", *asked).out
    assert "200" in remote("attempts", "list", *asked).out
    assert remote("deliveries", "list", *asked, "--code", "NEVER").err.strip() == "No deliveries match."


def test_an_endpoint_is_made_to_take_batches_and_no_longer(remote: Remote, receiver: Receiver, event_type: str) -> None:
    code = "409=BATCH_REJECTED"
    made = remote.json("endpoints", "create", event_type, receiver.url, "--type", event_type, "--batch", "--code", code)
    assert (made["batch"], made["code_map"]) == (True, {"409": "BATCH_REJECTED"})
    batch_id = remote.json("send", event_type, "{}")["event_id"]
    wait_for(lambda: remote.json("batches", "show", batch_id)["status"] == "CONFIRMED")
    assert remote.json("endpoints", "update", event_type, "--no-batch")["batch"] is False
    no_batch = remote.json("send", event_type, "{}")["event_id"]
    assert remote("batches", "show", no_batch).code == 3
    assert remote.json("endpoints", "update", event_type, "--batch")["batch"] is True
    assert remote.json("endpoints", "update", event_type, "--reset", "batch")["batch"] is False


def test_an_endpoint_is_given_a_destination_of_any_kind(remote: Remote, event_type: str) -> None:
    ship = '{"kind": "handler", "name": "ship"}'
    made = remote.json("endpoints", "create", event_type, "--type", event_type, "--destination", ship)
    assert (made["destination"], made["handler"]) == ({"kind": "handler", "name": "ship"}, "ship")
    bill = '{"kind": "handler", "name": "bill"}'
    assert remote.json("endpoints", "update", event_type, "--destination", bill)["handler"] == "bill"
    assert remote.json("endpoints", "update", event_type, "--destination", "log")["destination"] == {"kind": "log"}
    refused = remote("endpoints", "create", "x", "https://shop.example", "--destination", ship)
    assert refused.code != 0
    assert "contradicts destination" in refused.err


def test_what_is_no_translation_of_a_code_is_refused(remote: Remote) -> None:
    refused = remote("endpoints", "create", "x", "https://shop.example", "--code", "BUSY")
    assert refused.code == 2
    assert "THEIRS=OURS" in refused.err


def test_a_paused_endpoint_receives_nothing_until_it_is_resumed(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str
) -> None:
    assert remote.json("endpoints", "pause", shop["name"], "--reason", "moving house")["state"] == "paused"
    sent = remote.json("send", event_type, "{}")
    assert remote("status", sent["event_id"], "--wait", "--timeout", "300ms").code == 1
    assert receiver.received == []
    assert remote.json("endpoints", "resume", shop["name"])["state"] == "active"
    assert remote.json("status", sent["event_id"], "--wait")["status"] == "delivered"


def test_an_endpoint_is_tested_through_the_ordinary_path(
    remote: Remote, receiver: Receiver, shop: dict[str, Any]
) -> None:
    sent = remote.json("endpoints", "test", shop["name"], "--payload", '{"is": "a test"}', "--no-wait")
    assert remote.json("status", sent["event_id"], "--wait")["status"] == "delivered"
    assert receiver.received[-1].body == b'{"is": "a test"}'


def test_the_test_of_an_endpoint_shows_its_result(remote: Remote, receiver: Receiver, shop: dict[str, Any]) -> None:
    good = remote("endpoints", "test", shop["name"])
    assert good.code == 0 and re.search(r"delivered: 200 in \d+ ms", good.out)
    receiver.status = 404
    failed = remote("endpoints", "test", shop["name"])
    assert failed.code == 1
    assert re.search(r"failed: 404 in \d+ ms: NOT_FOUND, The receiver does not know this URL", failed.out)
    told = remote("endpoints", "test", shop["name"], "--json")
    assert (told.code, told.lines[0]["attempt"]["error_code"]) == (1, "NOT_FOUND")


def test_the_test_of_a_paused_endpoint_says_that_it_waits(remote: Remote, shop: dict[str, Any]) -> None:
    remote("endpoints", "pause", shop["name"])
    waiting = remote("endpoints", "test", shop["name"], "--timeout", "200ms")
    assert (waiting.code, "is paused" in waiting.err) == (1, True)


def test_an_own_secret_is_read_from_a_file_or_from_standard_input_and_not_repeated(
    remote: Remote, event_type: str, tmp_path: Path
) -> None:
    own = f"whsec_{base64.b64encode(os.urandom(32)).decode()}"
    (tmp_path / "secret").write_text(f"{own}\n")
    url = ("https://shop.example/", "--type", "never")
    made = remote("endpoints", "create", event_type, *url, "--secret", f"@{tmp_path}/secret")
    rotated = remote("endpoints", "rotate-secret", event_type, "--yes", "--secret", "-", stdin=own.encode())
    refused = remote("endpoints", "create", f"{event_type}.2", *url, "--secret", "my own secret")
    assert [one.code for one in (made, rotated, refused)] == [0, 0, 2]
    assert own not in made.out + made.err + rotated.out + rotated.err
    assert "whsec_" in refused.err and "my own secret" not in refused.err


def test_a_secret_is_rotated(remote: Remote, shop: dict[str, Any]) -> None:
    rotated = remote.json("endpoints", "rotate-secret", shop["name"], "--overlap", "1h", "--yes")
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != shop["secret"]


def test_the_past_is_replayed_to_an_endpoint(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str
) -> None:
    remote("send", event_type, '{"old": true}', "--wait")
    arguments = ("endpoints", "replay", shop["name"], "--since", "1h", "--type", event_type)
    assert remote.json(*arguments, "--preview")["count"] == 1
    assert remote.json(*arguments, "--yes")["state"] == "finished"
    wait_for(lambda: len(receiver.received) == 2)
    assert [one.body for one in receiver.received] == [b'{"old": true}'] * 2


def test_a_deleted_endpoint_is_gone(remote: Remote, shop: dict[str, Any]) -> None:
    assert remote.json("endpoints", "delete", shop["name"], "--yes")["deleted"] is True
    assert remote("endpoints", "show", shop["name"]).code == 3


def test_the_policy_of_an_endpoint_is_explained(remote: Remote, shop: dict[str, Any]) -> None:
    remote.json("endpoints", "update", shop["name"], "--policy", "5s,1m")
    explained = remote.json("policy", "explain", "--endpoint", shop["name"])
    assert [one["delay_seconds"] for one in explained["attempts"]] == [0, 5, 60]


def test_of_an_endpoint_that_is_cut_off_it_says_when_the_next_probe_is(
    remote: Remote, receiver: Receiver, shop: dict[str, Any], event_type: str
) -> None:
    assert remote.json("policy", "explain", "--endpoint", shop["name"])["next_probe_at"] is None
    rules = ("--circuit-failures", "1", "--circuit-probe", "1m", "--circuit-open", "1m")
    remote.json("endpoints", "update", shop["name"], *rules)
    receiver.status = 503
    remote.json("send", event_type, "{}")

    def circuit() -> dict[str, Any] | None:
        found = remote.json("endpoints", "circuit", shop["name"])
        return found if found["state"] == "open" else None

    probe_at = wait_for(circuit)["until"]
    assert remote.json("policy", "explain", "--endpoint", shop["name"])["next_probe_at"] == probe_at
    said = " ".join(remote("policy", "explain", "--endpoint", shop["name"]).out.split())
    assert f"nothing is attempted before the next probe, at {probe_at[:19].replace('T', ' ')} UTC." in said
    result = remote("endpoints", "test", shop["name"], "--timeout", "1s")
    assert result.code == 1 and "circuit is open until" in result.err


# -- keys, orgs, audit -----------------------------------------------------------------------------------------


def test_a_key_is_made_used_and_revoked(served: Program, remote: Remote, event_type: str) -> None:
    made = remote.json("keys", "create", "cli", "--role", "publisher")
    publisher = Remote(served, made["key"])
    assert publisher.json("send", event_type, "{}")["status"] == "received"
    assert publisher("events", "list").code == 4, "a publisher may not look"
    assert made["key"] not in remote("keys", "list").out
    assert remote.json("keys", "revoke", made["key_id"], "--yes")["revoked"] is True
    wait_for(lambda: publisher("send", event_type, "{}").code == 4)


def test_an_organization_comes_with_a_key_that_sees_nothing_of_others(
    served: Program, remote: Remote, shop: dict[str, Any]
) -> None:
    made = remote.json("orgs", "create", "another")
    other = Remote(served, made["admin_key"]["key"])
    assert other.json("endpoints", "list")["endpoints"] == []
    assert other("endpoints", "show", shop["endpoint_id"]).code == 3
    assert made["org_id"] in remote("orgs", "list").out


def test_an_organization_is_renamed_and_deleted_by_its_name_or_id(remote: Remote) -> None:
    names = [f"org {uuid4().hex}" for _ in range(2)]
    ids = [remote.json("orgs", "create", name)["org_id"] for name in names]
    unknown = remote("orgs", "rename", "nobody", names[1])
    assert (unknown.code, "no organization named 'nobody'" in unknown.err) == (3, True)
    assert remote.json("orgs", "rename", names[0], names[1])["org_id"] == ids[0]
    twice = remote("orgs", "delete", names[1], "--yes")
    assert twice.code == 2 and all(one in twice.err for one in ids), "two have this name now"
    assert remote.json("orgs", "rename", ids[0], names[0])["name"] == names[0]
    for name in (names[0], ids[1]):
        assert remote.json("orgs", "delete", name, "--yes")["deleted"] is True
    assert not set(ids) & {one["org_id"] for one in remote.json("orgs", "list")["orgs"]}


def test_the_audit_log_says_who_did_what(remote: Remote, shop: dict[str, Any]) -> None:
    remote("endpoints", "pause", shop["name"], "--reason", "moving house")
    lines = remote.json("audit", "-n", "20")["audit"]
    assert next(one["reason"] for one in lines if shop["endpoint_id"] in one["subjects"]) == "moving house"
    mine = remote.json("audit", "--actor", lines[0]["actor"], "--since", "1h", "-n", "20")["audit"]
    among_all = [one for one in lines if one["actor_id"] == lines[0]["actor_id"]]
    assert mine[: len(among_all)] == among_all
    assert remote("audit", "--until", "1h").err == "No actions for this filter.\n"


# -- local commands --------------------------------------------------------------------------------------------


def test_local_commands_answer_in_json_alone(tmp_path: Path) -> None:
    assert set(doorstep("version", "--json").json) == {"version"}
    settings = doorstep("settings", "--json").json["settings"]
    assert {"name", "variable", "default", "rule", "about"} == set(settings[0])
    assert doorstep("migrate", "--json", folder=tmp_path).json == {"migrated": True, "database": f"{tmp_path}/data"}


# -- errors ----------------------------------------------------------------------------------------------------


def test_a_server_that_cannot_be_reached_is_five(tmp_path: Path) -> None:
    environment = {"DOORSTEP_URL": f"http://127.0.0.1:{free_port()}", "DOORSTEP_API_KEY": "some-key-or-other"}
    ended = doorstep("events", "list", environment=environment, folder=tmp_path)
    assert (ended.code, ended.out) == (5, "")
    assert ended.err.startswith("doorstep: ")


def test_an_unknown_key_is_four(served: Program) -> None:
    ended = Remote(served, "no-such-key-at-all")("events", "list")
    assert ended.code == 4
    assert "DOORSTEP_API_KEY" in ended.err and served.url in ended.err
    assert "--key" in Remote(served)("events", "list", "--key", "no-such-key-at-all").err


def test_a_policy_that_is_unknown_is_answered_with_those_that_are(remote: Remote) -> None:
    ended = remote("endpoints", "create", "x", "https://shop.example", "--policy", "eager")
    assert ended.code == 2
    assert all(name in ended.err for name in BUILT_IN), ended.err


def test_no_key_is_wrong_usage_and_says_what_to_do(served: Program, tmp_path: Path) -> None:
    ended = doorstep("events", "list", "--url", served.url, folder=tmp_path)
    assert ended.code == 2
    assert "DOORSTEP_API_KEY" in ended.err


def test_the_admin_key_of_the_machine_stands_in_for_one(served: Program, tmp_path: Path) -> None:
    environment = {"DOORSTEP_ADMIN_KEY": ADMIN_KEY}
    assert doorstep("stats", "--url", served.url, environment=environment, folder=tmp_path).code == 0


def test_what_does_not_exist_is_three(remote: Remote) -> None:
    missing = "00000000-0000-7000-8000-000000000000"
    assert remote("status", missing).code == 3
    assert remote("endpoints", "show", "nobody-has-this-name").code == 3


def test_the_url_of_a_receiver_given_as_the_servers_does_not_get_the_key(remote: Remote, receiver: Receiver) -> None:
    refused = remote("endpoints", "create", "shop", "--url", receiver.url)
    assert refused.code == 2 and "give its URL after the name" in refused.err
    assert not receiver.received


@each_case(
    "arguments",
    [
        ("send", "order.paid", "{unquoted: 1}"),
        ("send", "order.paid", "@no-such-file"),
        ("send", "not a type!", "{}"),
        ("events", "list", "--since", "some time ago"),
        ("events", "list", "--status", "lost"),
        ("events", "list", "--cursor", "nonsense"),
        ("dead-letters", "retry"),
        ("dead-letters", "retry", "--all", "--type", "order.*"),
        ("dead-letters", "delete", "--all"),
        ("retry-queue", "skip", "--all"),
        ("endpoints", "create", "nowhere"),
        ("no-such-command",),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_two_and_one_sentence(remote: Remote, arguments: tuple[str, ...]) -> None:
    ended = remote(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err
