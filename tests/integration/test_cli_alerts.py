"""`doorstep alerts`, `alert-rules`, `silences` and `channels` against a running server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.support.commands import Remote
from tests.support.program import serving, wait_for
from tests.support.receiver import Receiver, receiving


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        it.status = 400
        yield it


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Remote]:
    with serving(tmp_path_factory.mktemp("alerts")) as program:
        shop = {"name": "shop", "url": receiver.url, "event_types": ["order.paid"]}
        assert program.post("/v1/endpoints", shop).status == 201
        assert program.post("/v1/events", {"event_type": "order.paid", "payload": 1}).status == 202
        yield Remote(program)


def test_an_alert_is_listed_shown_and_acknowledged(remote: Remote) -> None:
    wait_for(lambda: remote.json("alerts", "list", "--state", "open", "--endpoint", "shop")["alerts"])
    (alert,) = remote.json("alerts", "list", "--rule", "dead_letter")["alerts"]
    assert "shop: a delivery failed permanently" in remote("alerts", "list").out
    assert "INVALID_FORMAT" in remote("alerts", "show", alert["alert_id"]).out
    done = remote("alerts", "acknowledge", alert["alert_id"], "--reason", "on it")
    assert (done.code, "acknowledged by" in done.out) == (0, True)
    assert remote.json("alerts", "list", "--state", "recovered")["alerts"] == []


def test_a_rule_is_changed_for_an_endpoint_by_its_name_and_put_back(remote: Remote) -> None:
    changed = remote.json("alert-rules", "set", "failure_rate", "--threshold", "2", "--endpoint", "shop")
    assert changed["threshold"] == 2.0
    assert len(remote.json("alert-rules", "list")["alert_rules"]) == 7
    assert remote("alert-rules", "reset", changed["alert_rule_id"]).code == 0
    assert len(remote.json("alert-rules", "list")["alert_rules"]) == 6
    off = remote.json("alert-rules", "set", "oldest_due", "--off")
    assert off["enabled"] is False
    refused = remote("alert-rules", "set", "oldest_due", "--threshold", "1")
    assert (refused.code != 0, "threshold" in refused.err) == (True, True)


def test_a_silence_begins_and_ends(remote: Remote) -> None:
    made = remote.json("silences", "create", "--until", "2h", "--endpoint", "shop", "--reason", "planned work")
    assert "planned work" in remote("silences", "list").out
    assert remote("silences", "end", made["silence_id"]).code == 0
    assert "There are no silences" in remote("silences", "list").err


def test_a_silence_begins_later_if_it_is_told_to(remote: Remote) -> None:
    made = remote.json("silences", "create", "--from", "1h", "--until", "2h")
    lasts = datetime.fromisoformat(made["until_at"]) - datetime.fromisoformat(made["from_at"])
    assert timedelta(minutes=59) < lasts < timedelta(minutes=61)
    assert remote("silences", "end", made["silence_id"]).code == 0


def test_a_channel_is_made_tested_and_deleted(remote: Remote, receiver: Receiver) -> None:
    assert "nobody is notified of alerts" in remote("channels", "list").err
    only = ("--rule", "dead_letter", "--endpoint", "shop")
    made = remote.json("channels", "create", "ops", "--kind", "webhook", "--to", receiver.url, *only)
    assert made["secret"].startswith("whsec_")
    assert made["endpoint_ids"] == [remote.json("endpoints", "list")["endpoints"][0]["endpoint_id"]]
    assert remote("channels", "test", made["channel_id"]).code == 0
    wait_for(lambda: remote.json("channels", "list")["channels"][0]["last_error"])
    again = remote("channels", "test", made["channel_id"])
    assert (again.code != 0, "once in 5 seconds" in again.err) == (True, True)
    shown = remote("channels", "show", made["channel_id"]).out
    assert "INVALID_FORMAT" in shown and "failed" in shown
    assert "active" in remote("channels", "resume", made["channel_id"]).out
    assert remote("channels", "delete", made["channel_id"], "--yes").code == 0
    assert remote.json("channels", "list")["channels"] == []


def test_without_a_mail_server_a_channel_for_mail_is_refused_with_what_to_do(remote: Remote) -> None:
    refused = remote("channels", "create", "ops", "--kind", "email", "--to", "ops@shop.example")
    assert (refused.code != 0, "DOORSTEP_SMTP_URL" in refused.err) == (True, True)
