"""Finding events on the command line: by keys, by fields, and by the eight digits that the console shows."""

from __future__ import annotations

import pytest

from tests.support.commands import Remote
from tests.support.program import Program


@pytest.fixture
def remote(served: Program) -> Remote:
    return Remote(served)


def test_events_are_found_by_key_and_by_field_and_shown_by_their_short_id(remote: Remote) -> None:
    metadata = ("--metadata", '{"customer": 7}')
    keys = ("--ordering-key", "cli-line", "--idempotency-key", "cli-once")
    event_id = remote.json("send", "cli.searched", '{"order": {"id": "cli-42"}}', *metadata, *keys)["event_id"]
    correlation_id = remote.json("events", "show", event_id)["correlation_id"]
    searches = [
        ("--payload", "order.id=cli-42", "--metadata", "customer=7"),
        ("--ordering-key", "cli-line"),
        ("--idempotency-key", "cli-once"),
        ("--correlation-id", correlation_id),
    ]
    for options in searches:
        assert [one["event_id"] for one in remote.json("events", "list", *options)["events"]] == [event_id], options
    short = event_id[-8:]
    assert remote.json("events", "show", short)["event_id"] == event_id
    assert remote.json("status", short)["event_id"] == event_id
    assert [one["item_id"] for one in remote.json("find", short)["items"]] == [event_id]


def test_fields_are_declared_shown_and_cleared(remote: Remote) -> None:
    declared = remote.json("search-fields", "payload.cli", "metadata.cli")["fields"]
    assert [one["name"] for one in declared] == ["payload.cli", "metadata.cli"]
    assert remote.json("search-fields")["fields"] == declared
    assert remote.json("search-fields", "--none")["fields"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("events", "list", "--payload", "order.id"), 2, "a field and its value"),
        (("events", "list", "--payload", "order..id=42"), 2, "is payload.<path>"),
        (("events", "show", "0000abcd"), 3, "no event has an id that ends with 0000abcd"),
        (("find", "0000abcd"), 3, "Nothing has this id."),
        (("find", "abc"), 2, "must be a whole id or its last eight digits"),
        (("search-fields", "order.id"), 2, "is payload.<path>"),
    ],
)
def test_what_cannot_be_found_is_said_plainly(
    remote: Remote, arguments: tuple[str, ...], code: int, words: str
) -> None:
    ended = remote(*arguments)
    assert (ended.code, words in " ".join((ended.out + ended.err).split())) == (code, True), ended
