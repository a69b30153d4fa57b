"""Every invalid request gets a 4xx response that explains the problem: never a 5xx, never a traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.support.matrix import each_case
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program

EVENT = b'{"event_type": "a", "payload": %s}'

NOT_JSON = {
    "nothing": b"",
    "blanks": b"  \n",
    "a word": b"hello",
    "half an object": b'{"event_type": "a", "payload": ',
    "two values": b'{"event_type": "a", "payload": 1} {}',
    "single quotes": b"{'event_type': 'a', 'payload': 1}",
    "a byte order mark": b'\xef\xbb\xbf{"event_type": "a", "payload": 1}',
    "NaN": EVENT % b"NaN",
    "infinity": EVENT % b"-Infinity",
    "a trailing comma": EVENT % b"[1,]",
    "a leading zero": EVENT % b"01",
    "a bare control character": EVENT % b'"\x01"',
    "bytes that are not UTF-8": EVENT % b'"\xff"',
    "a UTF-8 surrogate": EVENT % b'"\xed\xa0\x80"',
    "bad UTF-8 outside of the payload": b'{"event_type": "\xc0\x80", "payload": 1}',
    "a lone surrogate": EVENT % b'"\\ud800"',
    "a lone surrogate before text": EVENT % b'"\\ud800abcdefgh"',
    "a reversed pair of surrogates": EVENT % b'"\\udc00\\ud800"',
    "a bad escape": EVENT % b'"\\x41"',
    "a thousand thousand brackets": EVENT % (b"[" * 100_000 + b"]" * 100_000),
    "brackets without end": b"[" * 100_000,
    "UTF-16": '{"event_type": "a", "payload": 1}'.encode("utf-16"),
}

WRONG = {
    "a list of numbers": (b"[1]", "events[0]"),
    "null": (b"null", "body"),
    "a string": (b'"event"', "body"),
    "no fields": (b"{}", "event_type"),
    "no payload": (b'{"event_type": "a"}', "payload"),
    "a number as type": (b'{"event_type": 1, "payload": 1}', "event_type"),
    "an empty type": (b'{"event_type": "", "payload": 1}', "event_type"),
    "a type with a blank": (b'{"event_type": "a b", "payload": 1}', "event_type"),
    "a type with a NUL": (b'{"event_type": "a\\u0000", "payload": 1}', "event_type"),
    "a type with a newline": (b'{"event_type": "a\\n", "payload": 1}', "event_type"),
    "a long type": (b'{"event_type": "%s", "payload": 1}' % (b"a" * 200), "event_type"),
    "an unknown field": (b'{"event_type": "a", "payload": 1, "playload": 2}', "playload"),
    "a deep payload": (EVENT % (b"[" * 65 + b"]" * 65), "payload"),
    "a deep payload of objects": (EVENT % (b'{"a":' * 65 + b"1" + b"}" * 65), "payload"),
    "a number of 5,000 digits": (EVENT % (b"9" * 5_000), "payload"),
    "an oversize payload": (EVENT % (b'"' + b"x" * 262_144 + b'"'), "payload"),
    "metadata that is a list": (b'{"event_type": "a", "payload": 1, "metadata": []}', "metadata"),
    "oversize metadata": (b'{"event_type": "a", "payload": 1, "metadata": {"a": "%s"}}' % (b"x" * 20_000), "metadata"),
    "a time without a zone": (b'{"event_type": "a", "payload": 1, "deliver_at": "2026-01-01T00:00:00"}', "deliver_at"),
    "a time that is none": (b'{"event_type": "a", "payload": 1, "deliver_at": "soon"}', "deliver_at"),
    "a time that is a number": (b'{"event_type": "a", "payload": 1, "deliver_at": 1e300}', "deliver_at"),
    "a time before all times": (
        b'{"event_type": "a", "payload": 1, "expires_at": "0001-01-01T00:00:00+23:59"}',
        "expires_at",
    ),
    "a time after all times": (
        b'{"event_type": "a", "payload": 1, "deliver_at": "9999-12-31T23:59:59-23:59"}',
        "deliver_at",
    ),
    "ids that are none": (b'{"event_type": "a", "payload": 1, "endpoint_ids": ["x"]}', "endpoint_ids"),
    "ids that are no list": (b'{"event_type": "a", "payload": 1, "endpoint_ids": "x"}', "endpoint_ids"),
    "an empty idempotency key": (b'{"event_type": "a", "payload": 1, "idempotency_key": ""}', "idempotency_key"),
    "a foreign idempotency key": ('{"event_type": "a", "payload": 1, "idempotency_key": "é"}'.encode(), "idempotency_key"),
}  # fmt: skip


@each_case("path", ["/v1/events", "/v1/events/batch"])
@each_case("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_body_that_is_not_json_is_refused(served: Program, path: str, body: bytes) -> None:
    answer = served.post(path, body)
    assert answer.status in (400, 422), answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == answer.status
    assert b"Traceback" not in answer.body


@each_case("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_the_other_routes_refuse_it_alike(served: Program, body: bytes) -> None:
    answer = served.post("/v1/endpoints", body)
    assert answer.status in (400, 422), answer.body
    assert answer.headers["content-type"] == "application/problem+json"


@each_case(("body", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_refused_and_its_field_named(served: Program, body: bytes, field: str) -> None:
    answer = served.post("/v1/events", body)
    assert answer.status == 422, answer.body
    assert answer.json["errors"][0]["field"].startswith(field), answer.body
    assert len(answer.body) < 2_000, "what was sent is not sent back at length"


@each_case(
    "payload",
    [b"[" * 64 + b"]" * 64, b'"' + b"[" * 1_000 + b'"', b'"' + b"9" * 5_000 + b'"', b'"\\u0000"', b"1e400", b"null",
     b'{"a": 1, "a": 2}', b'"\\ud83d\\ude00"', b"-0.0", b'""', b'"' + b"x" * 262_142 + b'"'],
    ids=["64 deep", "brackets in text", "digits in text", "an escaped NUL", "a huge float", "null", "a key twice",
         "a pair of surrogates", "minus zero", "an empty text", "the largest payload"],
)  # fmt: skip
def test_what_is_strange_but_json_is_taken_and_given_back_unchanged(served: Program, payload: bytes) -> None:
    answer = served.post("/v1/events", EVENT % payload)
    assert answer.status == 202, answer.body
    assert b'"payload":' + payload + b"," in served.get(f"/v1/events/{answer.json['event_id']}").body


@each_case(
    ("method", "path", "status"),
    [
        ("GET", "/v1/events/", 404),
        ("GET", "/v1/events/%00", 404),
        ("GET", "/v1/events/%ff/status", 404),
        ("GET", "/v1/events/..%2f..%2fetc", 404),
        ("GET", "/v1/events/" + "a" * 5_000, 404),
        ("PUT", "/v1/events", 405),
        ("PATCH", "/v1/endpoints", 405),
        ("GET", "/v1/events/batch", 405),
        ("DELETE", "/healthz", 405),
    ],
)
def test_paths_and_methods_that_do_not_exist_are_answered_with_a_problem(
    served: Program, method: str, path: str, status: int
) -> None:
    answer = served.request(method, path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"


def raw(served: Program, *pieces: bytes) -> bytes:
    """The server's response to these bytes, sent piece by piece."""
    place = urlsplit(served.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE_SECONDS) as connection:
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has hung up: only what it sent before counts
        try:
            while chunk := connection.recv(65_536):
                received += chunk
        except OSError:
            pass
        return received


HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nX-API-Key: " + ADMIN_KEY.encode() + b"\r\n"


@each_case("path", [b"/v1/events", b"/v1/events/batch", b"/v1/endpoints"])
def test_an_oversize_body_is_refused_before_it_has_been_read(served: Program, path: bytes) -> None:
    head = HEAD % path + b"Content-Length: 10000000000\r\n\r\n"
    answer = raw(served, head, b"[")
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert b"connection: close" in answer.lower()


def test_a_slightly_oversize_body_is_refused_and_the_connection_lives_on(served: Program) -> None:
    body = EVENT % (b'"' + b"x" * 400_000 + b'"')
    head = HEAD % b"/v1/events" + b"Content-Length: %d\r\n\r\n" % len(body)
    answer = raw(served, head, body, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert b"HTTP/1.1 200 OK" in answer


def chunked(size: int) -> Iterator[bytes]:
    piece = b"x" * 65_536
    for _ in range(size // len(piece)):
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def test_a_chunked_body_without_end_is_cut_off(served: Program) -> None:
    head = HEAD % b"/v1/events" + b"Transfer-Encoding: chunked\r\n\r\n"
    assert raw(served, head, *chunked(64 * 1024 * 1024)).startswith(b"HTTP/1.1 413 ")


@each_case(
    "request_bytes",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
)
def test_bytes_that_are_not_http_harm_nobody(served: Program, request_bytes: bytes) -> None:
    assert not raw(served, request_bytes).startswith(b"HTTP/1.1 5")
    assert served.get("/healthz").status == 200


def test_a_sender_that_hangs_up_in_the_middle_leaves_no_event_and_no_error(served: Program) -> None:
    before = len([line for line in served.out if '"level":"error"' in line])
    raw(served, HEAD % b"/v1/events" + b"Content-Length: 1000\r\n\r\n", b'{"event_type"')
    assert served.get("/healthz").status == 200
    assert len([line for line in served.out if '"level":"error"' in line]) == before


def test_after_all_this_there_is_no_traceback_in_the_log(served: Program) -> None:
    assert not [line for line in served.out if "Traceback" in line]
