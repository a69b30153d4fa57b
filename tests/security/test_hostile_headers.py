"""No field value can inject a header, neither into an outgoing request nor into an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.security.verdicts import same_verdict
from tests.support.builders import unused
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program, wait_for
from tests.support.receiver import Receiver, receiving

INJECTIONS = [
    "a\r\nx-injected: 1", "a\nx-injected: 1", "a\rx-injected: 1", "\r\nx-injected: 1", "a\r\n x-injected: 1",
    "a\r\n\r\nPOST /other HTTP/1.1", "a\x00\r\nx-injected: 1", "a\u2028x-injected: 1", "a\x0b\x0cx-injected: 1",
    "a\x85x-injected: 1", "a嘊嘍x-injected: 1", "a%0d%0ax-injected: 1", "a\\r\\nx-injected: 1", "a\u0100\u010a",
    "a\x7f", "a\x1b[31m",
]  # fmt: skip
"""The two ideographs end in the bytes of a line break, in case some code truncates characters to one byte."""


def test_a_header_of_an_endpoint_is_one_line_or_refused_alike_on_each_store(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for text in INJECTIONS:
        with subtests.test(text=ascii(text)):
            for headers in ({"x-own": text}, {text: "own"}, {f"x-own: 1\r\n{text}": "own"}):
                endpoint = {
                    "name": unused("a"),
                    "url": "https://127.0.0.1/",
                    "event_types": ["none"],
                    "headers": headers,
                }
                verdict = same_verdict(each, "POST", "/v1/endpoints", endpoint)
                plain = text.isascii() and text.isprintable() and headers.get("x-own") == text
                assert verdict.status == (201 if plain else 422), verdict


OURS = [
    "webhook-id", "Webhook-Signature", "webhook-timestamp", "webhook-anything", "Host", "content-length",
    "Content-Type", "transfer-encoding", "Connection", "expect", "TE", "x-correlation-id", "user-agent",
]  # fmt: skip


def test_a_header_that_is_ours_cannot_be_given(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for name in OURS:
        with subtests.test(name=name):
            endpoint = {
                "name": unused("a"),
                "url": "https://127.0.0.1/",
                "event_types": ["none"],
                "headers": {name: "x"},
            }
            assert same_verdict(each, "POST", "/v1/endpoints", endpoint).status == 422


FIELDS: dict[str, Any] = {
    "the name of the endpoint": lambda text: ({"name": text}, {}),
    "a header of the endpoint": lambda text: ({"headers": {"x-own": text}}, {}),
    "the path of the URL": lambda text: ({"path": text}, {}),
    "the type of the event": lambda text: ({}, {"event_type": text}),
    "the payload": lambda text: ({}, {"payload": text}),
    "the metadata": lambda text: ({}, {"metadata": {text: text}}),
    "the idempotency key": lambda text: ({}, {"idempotency_key": text}),
    "the ordering key": lambda text: ({}, {"ordering_key": text}),
}
"""For each field that affects an outgoing request: the fields of the endpoint and those of the event."""


@pytest.fixture(scope="module")
def collecting() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_what_is_sent_out_has_the_headers_that_we_put_there_and_no_others(
    served: Program, collecting: Receiver, subtests: pytest.Subtests
) -> None:
    for field, text in product(FIELDS, INJECTIONS):
        with subtests.test(field=field, text=ascii(text)):
            of_endpoint, of_event = FIELDS[field](text)
            url = collecting.url + of_endpoint.pop("path", "")
            endpoint = {"name": unused("a"), "url": url, "event_types": ["none"], "envelope": True} | of_endpoint
            made = served.post("/v1/endpoints", endpoint)
            if made.status != 201:
                assert made.status == 422, made.body
                continue
            event = {"event_type": "a", "payload": 1, "endpoint_ids": [made.json["endpoint_id"]]} | of_event
            sent = served.post("/v1/events", event, headers={"X-Correlation-Id": f"c-{uuid4().hex}"})
            if sent.status != 202:
                assert sent.status == 422, sent.body
                continue
            (headers, body) = arrived(collecting, sent.json["event_id"])
            assert headers.keys() <= EXPECTED
            assert json.loads(body)["data"] == event["payload"]


EXPECTED = {
    "accept", "content-length", "content-type", "host", "user-agent", "webhook-id", "webhook-timestamp",
    "webhook-signature", "x-correlation-id", "x-own",
}  # fmt: skip


def arrived(receiver: Receiver, event_id: str) -> tuple[dict[str, str], bytes]:
    """The only request for the event."""
    (found,) = wait_for(lambda: [one for one in list(receiver.received) if one.headers["webhook-id"] == event_id])
    return found.headers, found.body


# -- incoming headers ------------------------------------------------------------------------------------------

CORRELATION = {
    b"\x85\x8a": 422, b"a b": 422, b"": 422, b"a" * 129: 422, b"\xe5\x98\x8a": 422, b"a\tb": 422,
    b"a" * 128: 404, b"<script>": 404, b'"{}%0d%0a': 404,
}  # fmt: skip


def test_a_correlation_id_is_echoed_as_it_came_or_refused(served: Program, subtests: pytest.Subtests) -> None:
    for value, status in CORRELATION.items():
        with subtests.test(value=repr(value)[:20]):
            head, _, body = raw(served, b"GET", b"/v1/events/x", [b"X-Correlation-Id: " + value]).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), head
            lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"x-correlation-id:")]
            assert len(lines) == 1
            assert (lines[0] == b"x-correlation-id: " + value.lower()) is (status == 404)
            assert json.loads(body)["status"] == status


def test_an_idempotency_key_that_cannot_be_kept_is_refused_rather_than_ignored(
    served: Program, subtests: pytest.Subtests
) -> None:
    """An ignored key would let a repeated request be stored twice."""
    for value in (b"", b"\xff\xfe", b"\xe2\x82\xac", b"a" * 256, b"a\tb"):
        with subtests.test(value=repr(value)[:20]):
            body = b'{"event_type": "a", "payload": 1}'
            answer = raw(served, b"POST", b"/v1/events", [b"Idempotency-Key: " + value], body)
            assert answer.startswith(b"HTTP/1.1 422 "), answer


HOSTS = {
    (b"HTTP/1.1", ()): False, (b"HTTP/1.1", (b"Host: a", b"Host: a")): False,
    (b"HTTP/1.1", (b"Host: a", b"host: b")): False, (b"HTTP/1.0", (b"Host: a", b"Host: b")): False,
    (b"HTTP/1.0", ()): True, (b"HTTP/1.1", (b"Host: a",)): True,
}  # fmt: skip


def test_a_request_names_one_host_or_is_refused(served: Program, subtests: pytest.Subtests) -> None:
    """Proxies choose one of several hosts, perhaps another one than we do."""
    for (version, lines), welcome in HOSTS.items():
        with subtests.test(version=version, lines=lines):
            for start, otherwise in ((b"GET /healthz ", 200), (b"POST /v1/events ", 401)):
                head = [start + version, b"Connection: close", *lines, b"Content-Length: 0"]
                answer = exchanged(served, b"\r\n".join([*head, b"", b""]))
                assert answer.startswith(b"HTTP/1.1 %d " % (otherwise if welcome else 400))


AMBIGUOUS = (
    [b"X-API-Key: wrong", b"X-API-Key: " + ADMIN_KEY.encode()],
    [b"X-API-Key: wrong", b"Authorization: Bearer " + ADMIN_KEY.encode()],
    [b"Authorization: Basic " + ADMIN_KEY.encode()],
    [b"Authorization: Bearer"],
    [b"Authorization: Bearer  "],
    [b"X-API-Key: \xff\xfe"],
    [b"Cookie: X-API-Key=" + ADMIN_KEY.encode()],
)


def test_a_key_that_is_given_ambiguously_opens_nothing(served: Program, subtests: pytest.Subtests) -> None:
    for lines in AMBIGUOUS:
        with subtests.test(lines=repr(lines)):
            assert raw(served, b"GET", b"/v1/endpoints", lines, key=False).startswith(b"HTTP/1.1 401 ")


def raw(
    served: Program, method: bytes, path: bytes, lines: list[bytes], body: bytes = b"", *, key: bool = True
) -> bytes:
    """The raw answer to a request with exactly these header lines."""
    ours = [b"X-API-Key: " + ADMIN_KEY.encode()] if key else []
    head = [b"%b %b HTTP/1.1" % (method, path), b"Host: x", b"Connection: close", *ours, *lines]
    return exchanged(served, b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body]))


def exchanged(served: Program, request: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    place = urlsplit(served.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
        return received
