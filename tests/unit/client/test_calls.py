"""API calls of the client: how requests are built, and how answers are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, Field

from doorstep.client import NewEvent, Selection, UnexpectedAnswer
from doorstep.client.call import Call, delete, get, json_of, one, paged
from doorstep.client.endpoints import Endpoints
from doorstep.client.errors import Answer
from doorstep.client.events import Sending
from doorstep.client.queues import DeadLetters
from doorstep.schemas.shape import Listing, Pagination
from tests.unit.client.steps import ok


def body(call: Call[Any]) -> Any:
    return msgspec.json.decode(call.content or b"null")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("abc", "/v1/events/abc/status"),
        ("../keys", "/v1/events/%2E%2E%2Fkeys/status"),
        ("..", "/v1/events/%2E%2E/status"),
        ("a?b#c", "/v1/events/a%3Fb%23c/status"),
        ("ü", "/v1/events/%C3%BC/status"),
    ],
)
def test_an_id_cannot_lead_to_another_path(given: str, path: str) -> None:
    assert get(one(int), "/v1/events/{event_id}/status", given).path == path


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_no_answer_and_above_all_no_success(status: int) -> None:
    with pytest.raises(UnexpectedAnswer, match="was redirected"):
        delete("/v1/keys/{key_id}", "a").read(Answer(status, {"location": "https://elsewhere.example"}, b""))
    assert delete("/v1/keys/{key_id}", "a").read(Answer(204, {}, b"")) is None


def test_what_is_not_asked_for_is_not_in_the_query() -> None:
    when = datetime(2026, 1, 31, tzinfo=UTC)
    call = get(one(int), "/v1/events", query={"status": None, "limit": 5, "created_from": when})
    assert call.query == {"limit": "5", "created_from": "2026-01-31T00:00:00+00:00"}


def test_a_payload_in_bytes_is_sent_to_the_byte() -> None:
    exact = b'{"b" : 1.0, "a":1e2,\n "a": 12345678901234567890123}'
    call = Sending.send.described(None, "order.paid", exact)
    assert exact in call.content


@pytest.mark.parametrize("bad", [b"", b"{", b'1,"endpoint_ids":[]', b"1}", b'"\xff"', b"nul", b"[" * 100_000])
def test_bytes_that_are_not_one_json_value_are_refused_before_they_are_sent(bad: bytes) -> None:
    with pytest.raises(ValueError, match="must be JSON"):
        json_of(bad)


class Order(BaseModel):
    number: int = Field(alias="no")


@dataclass
class Line:
    sku: str


def test_a_payload_may_be_a_model_or_a_dataclass() -> None:
    assert body(Sending.send.described(None, "order.paid", Order(no=1)))["payload"] == {"no": 1}
    assert body(Sending.send.described(None, "order.paid", [Line("a")]))["payload"] == [{"sku": "a"}]


def test_a_payload_that_is_null_is_sent_as_null() -> None:
    assert body(Sending.send.described(None, "order.paid", None))["payload"] is None
    assert body(DeadLetters.edit_and_retry.described(None, "id", None)) == {"payload": None}


def test_what_was_not_given_is_not_in_the_body() -> None:
    sent = body(Sending.send.described(None, "order.paid", 1, idempotency_key="k"))
    assert sent == {"event_type": "order.paid", "payload": 1, "idempotency_key": "k"}


def test_every_event_of_a_batch_has_a_key_of_its_own() -> None:
    events = [NewEvent(event_type="a", payload=1), NewEvent(event_type="a", payload=1)]
    first, second = body(Sending.send_many.described(None, events))["events"]
    assert first["idempotency_key"] != second["idempotency_key"]


def test_in_a_change_none_is_a_value() -> None:
    assert body(Endpoints.change.described(None, "id", rate_per_second=None)) == {"rate_per_second": None}


def test_nothing_is_selected_by_leaving_something_out() -> None:
    assert Selection.everything().body == {"all": True}
    assert Selection.of([]).body == {"delivery_ids": []}
    assert Selection.where(event_type=None).body == {"filter": {}}
    when = datetime(2026, 1, 31, tzinfo=UTC)
    assert Selection.where(died_from=when).body == {"filter": {"died_from": when}}


def test_fields_that_are_not_known_are_ignored() -> None:
    class Thing(msgspec.Struct):
        name: str

    assert get(one(Thing), "/").read(ok({"name": "a", "of_tomorrow": 1})).name == "a"


class ThingPage(Listing[int], frozen=True):
    things: tuple[int, ...]
    pagination: Pagination


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"things":[]}', b'{"pagination":{}}', b"\xff", b"[]"])
def test_an_answer_that_cannot_be_read_says_what_was_asked(content: bytes) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"^GET /v1/things returned 200 with a body that cannot be decoded"):
        get(paged(ThingPage), "/v1/things").read(Answer(200, {}, content))


def test_the_next_page_is_the_same_call_with_another_cursor() -> None:
    call = get(paged(ThingPage), "/v1/things", query={"limit": 2, "cursor": "a"}).after("b")
    assert call.query == {"limit": "2", "cursor": "b"}
