"""Hostile JSON is refused with a 4xx or delivered byte for byte, and every store treats it the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doorstep.api.application import ROUTES
from tests.integration.test_rubbish import EVENT, NOT_JSON, WRONG
from tests.security.requests import BODIES, unknown_ids
from tests.security.verdicts import same_verdict, verdict_of
from tests.support.builders import unused
from tests.support.program import Program, wait_for
from tests.support.receiver import Receiver, receiving

_TAKES_NONE = "POST /v1/sign-in-links"
TAKES_A_BODY = [line for line in ROUTES if line.startswith(("POST ", "PATCH ")) and line != _TAKES_NONE]
EXAMPLES = 5_000 if os.environ.get("TORTURE") else 150


# -- refused ---------------------------------------------------------------------------------------------------


def test_what_is_not_json_is_refused_by_every_route_in_the_same_words_on_each_store(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for name, body in NOT_JSON.items():
        with subtests.test(body=name):
            for line in TAKES_A_BODY:
                method, path = line.split(" ")
                verdict = same_verdict(each, method, path.format(**unknown_ids()), body)
                assert verdict.refused or not body.strip(), (line, verdict)


def test_a_wrong_value_is_refused_in_the_same_words_on_each_store(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for name, (body, _) in WRONG.items():
        with subtests.test(body=name):
            assert same_verdict(each, "POST", "/v1/events", body).status == 422
            assert same_verdict(each, "POST", "/v1/events/batch", b"[%b]" % body).status == 422


DOUBLED = {
    "the payload": b'{"event_type": "a", "payload": 1, "payload": 2}',
    "the type": b'{"event_type": "a", "event_type": "b", "payload": 1}',
    "the name of an endpoint": b'{"name": "a", "name": "NAME", "handler": "h"}',
    "what to retry": b'{"all": true, "delivery_ids": [], "all": null}',
}


def test_a_field_given_twice_gets_the_same_verdict_on_each_store(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for name, body in DOUBLED.items():
        with subtests.test(twice=name):
            for path in ("/v1/events", "/v1/endpoints", "/v1/dead-letters/bulk-retry"):
                same_verdict(each, "POST", path, body.replace(b"NAME", unused("twice").encode()))


UNSTORABLE = ["\x00", "a\x00b", "\ud800", "a\udfffb", "\ud83d"]
TEXTS = {
    "POST /v1/endpoints": [
        {"name": "T", "handler": "h"},
        {"name": "a", "handler": "T"},
        {"name": "a", "handler": "h", "event_types": ["T"]},
        {"name": "a", "handler": "h", "retry_on": ["T"]},
        {"name": "a", "handler": "h", "give_up_on": ["T"]},
        {"name": "a", "handler": "h", "code_map": {"503": "T"}},
        {"name": "a", "handler": "h", "code_map": {"T": "503"}},
        {"name": "a", "handler": "h", "policy": "T"},
        {"name": "a", "handler": "h", "policy": {"delays": [], "name": "T"}},
        {"name": "a", "handler": "h", "policy_by_event_type": {"T": "quick"}},
        {"name": "a", "url": "https://shop.example/T"},
        {"name": "a", "url": "https://shop.example/", "headers": {"x-a": "T"}},
        {"name": "a", "url": "https://shop.example/", "headers": {"T": "a"}},
    ],
    "POST /v1/events": [
        {"event_type": "T", "payload": 1},
        {"event_type": "a", "payload": 1, "idempotency_key": "T"},
        {"event_type": "a", "payload": 1, "ordering_key": "T"},
    ],
    "POST /v1/keys": [{"name": "T", "role": "viewer"}],
    "POST /v1/orgs": [{"name": "T"}],
    "PUT /v1/search-fields": [{"fields": ["T"]}, {"fields": ["payload.T"]}],
    "POST /v1/dead-letters/bulk-retry": [
        {"all": True, "reason": "T"},
        {"filter": {"event_type": "T"}, "preview": True},
    ],
    "POST /v1/retry-queue/bulk-skip": [{"all": True, "reason": "T"}, {"filter": {"event_type": "T"}, "preview": True}],
}


def test_text_that_some_store_cannot_keep_gets_the_same_verdict_on_each(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    """PostgreSQL cannot store a NUL in text, and no store can store a lone surrogate."""
    for line, text in product(TEXTS, UNSTORABLE):
        with subtests.test(route=line, text=ascii(text)):
            method, path = line.split(" ")
            for template in TEXTS[line]:
                body = json.dumps(template).replace("T", json.dumps(text)[1:-1]).encode()
                same_verdict(each, method, path, body)


def test_a_reason_that_some_store_cannot_keep_gets_the_same_verdict_on_each(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for line, text in product((line for line in TAKES_A_BODY if line not in BODIES), UNSTORABLE):
        with subtests.test(route=line, text=ascii(text)):
            method, path = line.split(" ")
            same_verdict(each, method, path.format(**unknown_ids()), {"reason": text})


# -- random JSON -----------------------------------------------------------------------------------------------

SOUND = b'{"event_type": "order.paid", "payload": {"n": [1.5e3, "\\u00e9\xc3\xa9", null]}, "metadata": {"a": "b"}}'
TOKENS = [
    b"\\ud800",
    b"\\u0000",
    b"1e999",
    b"NaN",
    b"\xff",
    b"\xed\xa0\x80",
    b"[" * 70,
    b'"',
    b"}",
    b"\x00",
    b"9" * 500,
]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A valid event with a few bytes removed and others inserted."""
    body = SOUND
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.integers(0, 6))
        put = draw(st.one_of(st.binary(max_size=4), st.sampled_from(TOKENS)))
        body = body[:start] + put + body[end:]
    return body


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=not os.environ.get("TORTURE"),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=spoilt())
def test_spoilt_bytes_get_the_same_verdict_on_each_store(each: dict[str, Program], body: bytes) -> None:
    verdict = same_verdict(each, "POST", "/v1/events", body)
    assert verdict.status in (202, 400, 422)


# -- accepted --------------------------------------------------------------------------------------------------

STRANGE = {
    "null": b"null",
    "a key twice": b'{"a": 1, "a": 2}',
    "a float beyond all floats": b"[1e999, -1e999, 1e-999]",
    "an integer of 400 digits": b"9" * 400,
    "a float of 390 digits": b"0." + b"1" * 390,
    "minus zero": b"[-0, -0.0, 0e0, 1E+2, 1.50]",
    "escaped NUL": b'{"\\u0000": "\\u0000"}',
    "surrogate pair, escaped": b'"\\ud83d\\uDE00"',
    "surrogate pair, as it is": '"😀"'.encode(),
    "needless escapes": b'"\\/\\u0041\\u0062\\b\\f\\n\\r\\t"',
    "noncharacters": '"\ufffe\uffff\U0010ffff\ufdd0"'.encode(),
    "byte order mark inside": '"\ufeff"'.encode(),
    "line separators": '"\u2028\u2029\x7f\x85"'.encode(),
    "right to left": '"\u202e\u2066abc"'.encode(),
    "decomposed": '"e\u0301 \u00e9"'.encode(),
    "blanks everywhere": b'{ "a" :\t[ 1 ,\r\n 2 ] ,\n "b" : { } }',
    "63 deep": b"[" * 63 + b"]" * 63,
    "brackets in text": b'"' + b"[{" * 500 + b'"',
    "digits in text": b'"' + b"9" * 5_000 + b'"',
    "an empty key": b'{"": {"": ""}}',
    "prototype": b'{"__proto__": {"a": 1}, "constructor": 1}',
    "markup": b'"<script>alert(1)</script>\\u003c!--"',
    "SQL": b'"\'; DROP TABLE doorstep_events; --"',
    "format strings": b'"%s %n {0} {{x}} ${x} #{x}"',
    "a percent sign and backslashes": b'"100 % \\\\ \\\\u0041"',
    "a true value": b"true",
    "an empty text": b'""',
}
"""All of these are valid JSON, so they are accepted, and the receiver gets exactly the same bytes."""


@pytest.fixture(scope="module")
def taking(each: dict[str, Program]) -> Iterator[tuple[str, dict[str, Receiver]]]:
    """An event type and, for each store, the receiver of its events."""
    event_type = f"strange.{uuid4().hex}"
    with ExitStack() as stack:
        receivers = {name: stack.enter_context(receiving()) for name in each}
        for name, program in each.items():
            endpoint = {"name": unused("strange"), "url": receivers[name].url, "event_types": [event_type]}
            assert program.post("/v1/endpoints", endpoint).status == 201
        yield event_type, receivers


def test_what_is_strange_but_json_is_delivered_byte_for_byte_from_each_store(
    each: dict[str, Program], taking: tuple[str, dict[str, Receiver]], subtests: pytest.Subtests
) -> None:
    for kind, payload in STRANGE.items():
        with subtests.test(payload=kind):
            event_type, receivers = taking
            for name, program in each.items():
                body = b'{"event_type": "%b", "payload": %b, "metadata": {"m": %b}}' % (
                    event_type.encode(),
                    payload,
                    payload,
                )
                answer = program.post("/v1/events", body)
                assert verdict_of(answer).status == 202, answer.body
                event_id = answer.json["event_id"]
                assert delivered(receivers[name], event_id) == [payload]
                shown = program.get(f"/v1/events/{event_id}").body
                assert b'"payload":' + payload + b"," in shown
                assert b'"metadata":{"m": ' + payload + b"}," in shown


def delivered(receiver: Receiver, event_id: str) -> list[bytes]:
    """The bodies that have arrived for the event, once there is at least one."""
    return wait_for(
        lambda: [one.body for one in list(receiver.received) if one.headers["webhook-id"] == event_id],
    )


def test_the_event_s_own_field_decides_even_if_its_payload_looks_like_an_event(
    each: dict[str, Program], taking: tuple[str, dict[str, Receiver]]
) -> None:
    event_type, receivers = taking
    inner = EVENT % b'{"event_type": "other", "payload": 3}'
    for name, program in each.items():
        body = b'{"payload": %b, "event_type": "%b"}' % (inner, event_type.encode())
        event_id = program.post("/v1/events", body).json["event_id"]
        assert delivered(receivers[name], event_id) == [inner]
