"""Sizes at, below and above each limit, and requests that declare a wrong size: the same answers on every store."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from urllib.parse import urlsplit

import psutil
import pytest

from tests.security.verdicts import same_verdict
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program

PAYLOAD_MAX = 256 * 1024
BATCH_MAX = 1_000
METADATA_MAX = 16 * 1024
SMALL_BODY_MAX = 256 * 1024
MIB = 1024 * 1024


def text(size: int) -> bytes:
    """A JSON text of exactly this many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


def event(payload: bytes = b"1", more: bytes = b"") -> bytes:
    return b'{"event_type": "size", "payload": %b%b}' % (payload, more)


def test_a_payload_may_be_as_large_as_the_limit_and_not_a_byte_larger(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for size, status in ((PAYLOAD_MAX - 1, 202), (PAYLOAD_MAX, 202), (PAYLOAD_MAX + 1, 422)):
        with subtests.test(size=size):
            assert same_verdict(each, "POST", "/v1/events", event(text(size))).status == status
            assert same_verdict(each, "POST", "/v1/events/batch", b"[%b]" % event(text(size))).status == status


def test_what_makes_a_payload_too_large_is_its_bytes_not_its_characters(each: dict[str, Program]) -> None:
    three_bytes_each = '"' + "€" * (PAYLOAD_MAX // 3) + '"'
    assert len(three_bytes_each) < PAYLOAD_MAX < len(three_bytes_each.encode())
    assert same_verdict(each, "POST", "/v1/events", event(three_bytes_each.encode())).status == 422


def test_a_batch_holds_up_to_a_thousand_events(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for count, status in ((0, 422), (1, 202), (BATCH_MAX, 202), (BATCH_MAX + 1, 422)):
        with subtests.test(count=count):
            body = b"[%b]" % b",".join([event()] * count)
            assert same_verdict(each, "POST", "/v1/events", body).status == status
            assert same_verdict(each, "POST", "/v1/events/batch", b'{"events": %b}' % body).status == status


def test_metadata_has_a_limit_of_its_own(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for size in (METADATA_MAX, METADATA_MAX + 1):
        with subtests.test(size=size):
            metadata = b'{"m":%b}' % text(size - 6)
            status = 202 if size <= METADATA_MAX else 422
            assert same_verdict(each, "POST", "/v1/events", event(more=b', "metadata": %b' % metadata)).status == status


def test_bodies_of_the_other_routes_have_a_limit(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for size in (SMALL_BODY_MAX, SMALL_BODY_MAX + 1):
        with subtests.test(size=size):
            body = b'{"name": "", "role": "viewer"}'
            verdict = same_verdict(each, "POST", "/v1/keys", body + b" " * (size - len(body)))
            assert verdict.status == (422 if size <= SMALL_BODY_MAX else 413)


MANY = {
    "event types": {"name": "a", "handler": "h", "event_types": ["a"] * 1_001},
    "headers": {"name": "a", "url": "https://shop.example/", "headers": {f"x-{n}": "a" for n in range(101)}},
    "codes": {"name": "a", "handler": "h", "retry_on": ["A"] * 101},
    "translations": {"name": "a", "handler": "h", "code_map": {str(n): "A" for n in range(1_001)}},
    "delays": {"name": "a", "handler": "h", "policy": [1] * 101},
    "policies": {"name": "a", "handler": "h", "policy_by_event_type": {f"a{n}": "quick" for n in range(101)}},
    "a long name": {"name": "a" * 201, "handler": "h"},
    "a long handler": {"name": "a", "handler": "h" * 201},
    "a long code": {"name": "a", "handler": "h", "code_map": {"503": "A" * 101}},
    "a long policy name": {"name": "a", "handler": "h", "policy": {"delays": [], "name": "n" * 201}},
    "a long header": {"name": "a", "url": "https://shop.example/", "headers": {"x-a": "a" * 4_001}},
    "a long URL": {"name": "a", "url": "https://shop.example/" + "a" * 2_048},
}


def test_an_endpoint_has_a_limit_on_everything(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for name, endpoint in MANY.items():
        with subtests.test(many=name):
            assert same_verdict(each, "POST", "/v1/endpoints", endpoint).status == 422


def test_a_bulk_operation_names_up_to_a_thousand_deliveries(each: dict[str, Program]) -> None:
    one = "01890a5d-ac96-774b-bcce-b302099a8057"
    for count, status in ((1_000, 200), (1_001, 422)):
        body = {"delivery_ids": [one] * count, "preview": True}
        assert same_verdict(each, "POST", "/v1/dead-letters/bulk-retry", body).status == status


def test_a_payload_for_a_test_or_an_edited_one_may_be_as_large_as_any_other(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for size, status in ((PAYLOAD_MAX, 404), (PAYLOAD_MAX + 100 * 1024, 413)):
        with subtests.test(size=size):
            one = "01890a5d-ac96-774b-bcce-b302099a8057"
            for path in (f"/v1/endpoints/{one}/test", f"/v1/dead-letters/{one}/retry"):
                assert same_verdict(each, "POST", path, b'{"payload": %b}' % text(size)).status == status


# -- false sizes -----------------------------------------------------------------------------------------------

KEY = b"X-API-Key: " + ADMIN_KEY.encode()
SOUND = event()


def exchange(served: Program, *pieces: bytes, hang_up: bool = True) -> bytes:
    """Send these bytes and return the answer. With `hang_up`, close our side to show that no more will come."""
    place = urlsplit(served.url)
    received = b""
    with socket.create_connection((place.hostname, place.port), PATIENCE_SECONDS) as connection:
        with suppress(OSError):  # the server has hung up: what it answered before counts
            for piece in pieces:
                connection.sendall(piece)
            if hang_up:
                connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while chunk := connection.recv(65_536):
                received += chunk
    return received


def head(*lines: bytes, path: bytes = b"/v1/events") -> bytes:
    return b"\r\n".join([b"POST %b HTTP/1.1" % path, b"Host: x", KEY, *lines, b"", b""])


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def count_events(served: Program) -> int:
    return len(served.get("/v1/events?event_type=size.lie&limit=1000").json["events"])


LIE = b'{"event_type": "size.lie", "payload": 1}'
LENGTH = len(LIE)
LIES = {
    "longer than it is": (b"Content-Length: %d" % (LENGTH + 1), LIE),
    "twice, differently": (b"Content-Length: %d\r\nContent-Length: 0" % LENGTH, LIE),
    "a list of two": (b"Content-Length: %d, %d" % (LENGTH, LENGTH + 1), LIE),
    "signed": (b"Content-Length: +%d" % LENGTH, LIE),
    "hexadecimal": (b"Content-Length: 0x%x" % LENGTH, LIE),
    "beyond 64 bits": (b"Content-Length: 18446744073709551657", LIE),
    "chunked, but not": (b"Transfer-Encoding: chunked", LIE),
    "a chunk without its end": (b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (LENGTH, LIE)),
    "a chunk longer than said": (b"Transfer-Encoding: chunked", b"5\r\n%b\r\n0\r\n\r\n" % LIE),
    "an unknown coding": (b"Transfer-Encoding: gzip", LIE),
    "no length at all": (b"X-Nothing: 1", LIE),
}


def test_a_request_that_lies_about_its_length_stores_nothing(served: Program, subtests: pytest.Subtests) -> None:
    for name, (lines, body) in LIES.items():
        with subtests.test(lie=name):
            before = count_events(served)
            answered = statuses(exchange(served, head(lines), body))
            assert [status for status in answered if status < 400 or status >= 500] == [], answered
            assert count_events(served) == before


def test_the_control_the_same_request_with_its_true_length_is_stored(served: Program) -> None:
    before = count_events(served)
    length = b"Content-Length: %d" % LENGTH
    answer = exchange(served, head(length, b"Connection: close"), LIE, hang_up=False)
    assert statuses(answer) == [202]
    assert count_events(served) == before + 1


SMUGGLED = b"GET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request without a key. A 200 would show that the server served it with the key of the request before it."""


HIDING = (
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
)


def test_a_second_request_hidden_in_the_first_is_not_answered_as_if_it_had_a_key(
    served: Program, subtests: pytest.Subtests
) -> None:
    for lines in HIDING:
        with subtests.test(lines=repr(lines)):
            answered = statuses(exchange(served, head(lines), b"0\r\n\r\n" + SMUGGLED))
            assert 200 not in answered and not [status for status in answered if status >= 500], answered


def test_a_body_without_end_is_cut_off_at_every_route(served: Program, subtests: pytest.Subtests) -> None:
    for path in (b"/v1/endpoints", b"/v1/events/batch", b"/v1/dead-letters/bulk-retry", b"/v1/keys"):
        with subtests.test(path=path.decode()):

            def chunks() -> Iterator[bytes]:
                for _ in range(512):
                    yield b"10000\r\n%b\r\n" % (b" " * 65_536)

            assert statuses(exchange(served, head(b"Transfer-Encoding: chunked", path=path), *chunks())) == [413]


def test_thousands_of_headers_and_an_endless_query_are_refused_and_harm_nobody(served: Program) -> None:
    for request in (
        head(*[b"X-%d: a" % number for number in range(20_000)], b"Content-Length: 0"),
        b"GET /v1/events?%b HTTP/1.1\r\nHost: x\r\n%b\r\nConnection: close\r\n\r\n" % (b"a=1&" * 20_000, KEY),
        b"GET /%b HTTP/1.1\r\nHost: x\r\n%b\r\nConnection: close\r\n\r\n" % (b"a" * 200_000, KEY),
    ):
        answered = statuses(exchange(served, request))
        assert answered == [431]
    assert served.get("/healthz").status == 200


ENDLESS = {
    "one header": (head()[:-2] + b"X-Endless: ", b"a" * 65_536),
    "many headers": (head()[:-2], b"X-A: a\r\n" * 8_192),
    "one URL": (b"GET /", b"a" * 65_536),
    "a trailer": (head(b"Transfer-Encoding: chunked") + b"0\r\nX-Endless: ", b"a" * 65_536),
}


def test_headers_without_end_take_no_memory_and_stop_nobody_else(served: Program, subtests: pytest.Subtests) -> None:
    process = psutil.Process(served.process.pid)
    before = process.memory_info().rss
    for name, (start, piece) in ENDLESS.items():
        with subtests.test(endless=name):
            answer = exchange(served, start, *repeat(piece, 2_000))  # 125 MiB
            assert statuses(answer) in ([431], []), "the connection may end before the client reads"
            assert process.memory_info().rss < before + 50 * MIB
            assert served.get("/healthz").status == 200


def test_requests_without_end_and_without_reading_the_responses_take_no_memory(served: Program) -> None:
    process = psutil.Process(served.process.pid)
    before = process.memory_info().rss
    exchange(served, *repeat(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000, 20))
    assert process.memory_info().rss < before + 50 * MIB
    assert served.get("/healthz").status == 200


def test_after_all_this_there_is_no_traceback_in_the_log(each: dict[str, Program]) -> None:
    for program in each.values():
        assert not [line for line in program.out if "Traceback" in line]
        assert all(json.loads(line) for line in list(program.out))
