"""The test receiver on a real socket, called by a client that knows nothing of Doorstep."""

from __future__ import annotations

import http.client
import socket
import time
from contextlib import suppress

import pytest

from doorstep.testing import (
    Answer,
    FakeClock,
    Receiver,
    Request,
    dead,
    dribble,
    flaky,
    ok,
    reset,
    scripted,
    slow,
    status,
)
from tests.support.patience import PATIENCE_SECONDS

pytest_plugins = ["doorstep.testing.fixtures"]


def post(receiver: Receiver, path: str = "/", body: bytes = b"{}", timeout_seconds: float = PATIENCE_SECONDS) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=timeout_seconds)
    try:
        connection.request("POST", path, body, {"webhook-id": "one"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_takes_everything_and_keeps_every_request(receiver: Receiver) -> None:
    assert [post(receiver, "/a", b"1"), post(receiver, "/b", b"2")] == [200, 200]
    seen = [(request.path, request.json(), request.event_id) for request in receiver.requests]
    assert seen == [("/a", 1, "one"), ("/b", 2, "one")]


def test_a_script_is_followed_and_its_last_answer_stays(receiver: Receiver) -> None:
    receiver.behaves(scripted([500, Answer(429), 200]))
    assert [post(receiver) for _ in range(5)] == [500, 429, 200, 200, 200]


def test_each_path_may_have_a_personality_of_its_own(receiver: Receiver) -> None:
    receiver.behaves(status(503))
    receiver.behaves(ok, at="/healthy")
    receiver.behaves(status(418), at=receiver.url("/tea"))
    assert [post(receiver, path) for path in ("/", "/healthy", "/tea")] == [503, 200, 418]


def test_a_personality_may_be_any_function_of_the_request(receiver: Receiver) -> None:
    def picky(request: Request) -> Answer:
        return Answer(422 if b"wrong" in request.body else 200)

    receiver.behaves(picky)
    assert [post(receiver, body=b'"wrong"'), post(receiver, body=b'"right"')] == [422, 200]


def test_a_flaky_one_fails_its_share_and_the_same_requests_in_every_run() -> None:
    request = Request("http://here/", {}, b"", 0)
    one, other = flaky(0.3), flaky(0.3)
    first = [one(request).status for _ in range(1_000)]
    assert [other(request).status for _ in range(1_000)] == first
    assert 250 < first.count(503) < 350
    assert {flaky(0)(request).status, flaky(1)(request).status} == {200, 503}


@pytest.mark.parametrize("personality", [dead, dribble, slow(60)])
def test_a_dead_a_dribbling_and_a_slow_one_let_a_sender_wait(personality, receiver: Receiver) -> None:
    receiver.behaves(personality)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        post(receiver, timeout_seconds=0.1)
    assert time.monotonic() - began >= 0.1
    assert len(receiver.requests) == 1


def test_a_dribbling_one_sends_its_first_byte_and_then_dawdles(receiver: Receiver) -> None:
    receiver.behaves(dribble)
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert connection.recv(100) == b"H"
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)


def test_one_that_resets_hangs_up_without_an_answer(receiver: Receiver) -> None:
    receiver.behaves(reset)
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        post(receiver)


def test_an_unsigned_request_is_answered_401_and_says_what_is_wrong(receiver: Receiver) -> None:
    receiver.verifies("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert post(receiver) == 401
    assert "webhook-timestamp" in receiver.requests[0].flaw


def test_a_script_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        scripted([])


def test_closing_hangs_up_on_those_who_still_wait_and_frees_the_port() -> None:
    with Receiver() as receiver:
        receiver.behaves(dead)
        waiting = socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE_SECONDS)
        waiting.sendall(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    with waiting, suppress(ConnectionResetError):
        assert waiting.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE_SECONDS)


def test_the_receiver_and_the_test_share_the_clock(receiver: Receiver, doorstep_clock: FakeClock) -> None:
    doorstep_clock.advance(3_600)
    post(receiver)
    assert receiver.requests[0].at == doorstep_clock.now()
