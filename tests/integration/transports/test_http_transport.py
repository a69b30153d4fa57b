"""The HTTP transport against a real receiver on a loopback socket."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pycurl
import pytest

from doorstep.errors import ConfigError
from doorstep.model.attempt import Code
from doorstep.transports import curl_loop, dns_cache, http
from doorstep.transports.curl_loop import EpollReadiness, LoopReadiness
from doorstep.transports.http import Exchange
from tests.support.patience import PATIENCE_SECONDS
from tests.support.raw_receiver import answer, receiving
from tests.support.sending import Sending, a_transmission, sending_over_http
from tests.unit.transports.certificates import certificate

SECRET = "sk_live_canary"


async def test_the_body_arrives_byte_for_byte_whatever_bytes_it_has() -> None:
    payloads = [b"", b"\x00", b"a\x00b", bytes(range(256)) * 8, b"\xff\xfe{", b"x" * 3_000_000]
    async with receiving() as receiver, sending_over_http() as sending:
        for payload in payloads:
            assert (await sending.one(a_transmission(receiver.url, payload))).status == 200
        assert [request.body for request in receiver.requests] == payloads


async def test_the_request_is_a_bare_post_with_exactly_the_headers_given() -> None:
    headers = ("content-type: application/json", "user-agent: Doorstep/1", "webhook-id: 7")
    async with receiving() as receiver, sending_over_http() as sending:
        await sending.one(a_transmission(receiver.url, b"{}", headers))
        (request,) = receiver.requests
        lines = request.head.split("\r\n")
        assert lines[0] == "POST /hook HTTP/1.1"
        assert sorted(lines[1:]) == sorted(
            [*headers, f"Host: 127.0.0.1:{receiver.port}", "Accept: */*", "Content-Length: 2"]
        )


async def test_the_reply_has_status_headers_body_times_and_the_headers_for_the_log() -> None:
    busy = answer("503 Busy", b"later", "Retry-After: 7")
    async with receiving(lambda _: busy) as receiver, sending_over_http() as sending:
        reply = await sending.one(a_transmission(receiver.url))
    assert (reply.status, reply.body, reply.body_cut, reply.failure) == (503, b"later", False, None)
    assert reply.headers.startswith(b"HTTP/1.1 503 Busy\r\n") and b"Retry-After: 7\r\n" in reply.headers
    assert reply.request_headers == b"content-type: application/json"
    assert 0 < reply.timings.connect <= reply.timings.first_byte
    assert reply.timings.first_byte <= reply.finished_at - reply.started_at + 2_000


async def test_connections_are_kept_and_a_kept_one_has_no_connect_time() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        replies = [await sending.one(a_transmission(receiver.url)) for _ in range(5)]
        assert receiver.connections == 1
    assert replies[0].timings.connect > 0
    assert all(reply.timings.connect == reply.timings.dns == 0 < reply.timings.first_byte for reply in replies[1:])


async def test_no_more_than_connections_max_run_at_once_and_all_of_them_end() -> None:
    async with receiving() as receiver, sending_over_http(connections_max=4) as sending:
        replies = await sending.all([a_transmission(receiver.url) for _ in range(200)])
        assert all(reply.status == 200 for reply in replies)
        assert receiver.connections <= 4


async def test_replies_come_in_batches() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        await sending.all([a_transmission(receiver.url) for _ in range(300)])
        assert sum(sending.batches) == 300 and len(sending.batches) < 150


async def test_redirects_are_reported_and_not_followed() -> None:
    async with receiving() as inner:
        reply_with = answer("302 Found", b"", f"Location: {inner.url}")
        async with receiving(lambda _: reply_with) as outer, sending_over_http() as sending:
            reply = await sending.one(a_transmission(outer.url))
        assert (reply.status, reply.failure, inner.connections) == (302, None, 0)


async def test_proxies_netrc_and_cookies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with receiving(lambda _: answer("200 OK", b"", "Set-Cookie: a=b; path=/")) as receiver:
        async with sending_over_http() as sending:
            for _ in range(2):
                assert (await sending.one(a_transmission(receiver.url))).status == 200
        for request in receiver.requests:
            assert not request.header("cookie") and not request.header("authorization")


async def test_a_body_over_the_cap_is_cut_and_its_status_counts() -> None:
    large = answer("200 OK", b"x" * 50_000)
    async with receiving(lambda _: large) as receiver, sending_over_http(body_bytes_max=1_000) as sending:
        reply = await sending.one(a_transmission(receiver.url))
    assert (reply.status, reply.body, reply.body_cut, reply.failure) == (200, b"x" * 1_000, True, None)


async def test_a_body_of_exactly_the_cap_is_not_cut() -> None:
    large = answer("200 OK", b"x" * 1_000)
    async with receiving(lambda _: large) as receiver, sending_over_http(body_bytes_max=1_000) as sending:
        reply = await sending.one(a_transmission(receiver.url))
    assert (len(reply.body), reply.body_cut) == (1_000, False)


async def test_only_the_final_answer_s_headers_are_kept_after_interim_ones() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with receiving(lambda _: interim + answer("204 No Content")) as receiver, sending_over_http() as sending:
        reply = await sending.one(a_transmission(receiver.url))
    assert reply.status == 204 and reply.headers.startswith(b"HTTP/1.1 204") and b"Link" not in reply.headers


async def test_a_refused_connection_is_a_connection_failure_and_the_next_try_is_not_harmed() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        closed = a_transmission("http://127.0.0.1:1/")
        assert (await sending.one(closed)).failure.code == Code.CONNECTION  # type: ignore[union-attr]
        assert (await sending.one(a_transmission(receiver.url))).status == 200


async def test_a_name_that_cannot_be_resolved_is_a_dns_failure() -> None:
    overlong = "a" * 64 + ".invalid"  # the resolver itself refuses it: no packet leaves the machine
    async with sending_over_http() as sending:
        reply = await sending.one(a_transmission(f"http://{overlong}/"))
    assert reply.failure is not None and reply.failure.code == Code.DNS


async def test_a_header_with_a_line_break_is_never_sent() -> None:
    for evil in ("x: 1\r\nhost: evil", "x: 1\nevil: 1", "x: \x00"):
        async with receiving() as receiver, sending_over_http() as sending:
            reply = await sending.one(a_transmission(receiver.url, headers=(evil,)))
            assert reply.failure is not None and reply.failure.code == Code.BLOCKED
            assert receiver.connections == 0


@pytest.mark.parametrize(
    "target",
    ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://", "http://a b/", "http://é/", ""],
)
async def test_what_is_no_http_url_fails_the_try_and_nothing_else(target: str) -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        bad, good = await sending.all([a_transmission(target), a_transmission(receiver.url)])
    assert bad.failure is not None and bad.failure.code == Code.BLOCKED
    assert good.status == 200


async def test_failures_name_neither_secrets_nor_payload_nor_the_url_s_credentials() -> None:
    headers = (f"authorization: Bearer {SECRET}",)
    targets = [f"http://me:{SECRET}@127.0.0.1:1/", f"http://127.0.0.1:1/?key={SECRET}", f"ftp://{SECRET}@127.0.0.1/"]
    evil_headers = (*headers, f"x: {SECRET}\n")
    async with sending_over_http() as sending:
        sent = [a_transmission(target, SECRET.encode(), headers) for target in targets]
        replies = await sending.all([*sent, a_transmission("http://127.0.0.1:1/", headers=evil_headers)])
    for reply in replies:
        assert reply.failure is not None and SECRET not in repr(reply)


async def test_tls_is_verified_against_the_given_authorities_and_the_time_of_the_handshake_is_measured(
    tmp_path: Path,
) -> None:
    context, trusted = certificate(tmp_path)
    async with receiving(tls=context) as receiver, sending_over_http(ca_file=trusted) as sending:
        reply = await sending.one(a_transmission(receiver.url))
    assert reply.status == 200 and reply.failure is None
    assert reply.timings.connect < reply.timings.tls <= reply.timings.first_byte


def test_a_ca_file_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        http.HttpTransport(None, None, ca_file="/nowhere.pem")  # type: ignore[arg-type]


async def test_start_may_be_called_from_any_thread() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        sent = [a_transmission(receiver.url) for _ in range(100)]
        futures = []
        original, sending.transport.start = sending.transport.start, lambda _: None  # type: ignore[method-assign]
        futures = sending.start(sent)
        threads = [threading.Thread(target=original, args=(sent[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        assert {reply.status for reply in await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS)} == {200}


async def test_without_file_descriptors_no_attempt_is_made_and_later_ones_work_again() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        with no_file_descriptors_left():
            reply = await sending.one(a_transmission(receiver.url))
        assert reply.shortage == "this process has no free file descriptors"
        assert (await sending.one(a_transmission(receiver.url))).status == 200


async def test_without_file_descriptors_to_look_up_a_name_no_attempt_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async with sending_over_http(resolve=unknown) as sending:
        reply = await sending.one(a_transmission("http://receiver.example/"))
    assert (reply.failure and reply.failure.code, reply.shortage) == (Code.DNS, "")
    monkeypatch.setattr(dns_cache, "shortage_now", lambda: "this process has no free file descriptors")
    async with sending_over_http(resolve=unknown) as sending:
        reply = await sending.one(a_transmission("http://receiver.example/"))
    assert reply.shortage == "this process has no free file descriptors"


async def test_a_refused_connection_is_no_shortage_of_ours() -> None:
    async with sending_over_http() as sending:
        reply = await sending.one(a_transmission("http://127.0.0.1:1/"))
    assert (reply.failure and reply.failure.code, reply.shortage) == (Code.CONNECTION, "")


async def test_a_broken_multi_handle_fails_what_is_running_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(self: EpollReadiness, fd: int, wanted: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    async with receiving() as receiver, sending_over_http() as sending:
        with monkeypatch.context() as patched:
            patched.setattr(EpollReadiness, "watch", out_of_memory)
            replies = await sending.all([a_transmission(receiver.url) for _ in range(3)])
        for reply in replies:
            assert reply.failure is not None and reply.failure.code == Code.CONNECTION
        assert (await sending.one(a_transmission(receiver.url))).status == 200


async def test_an_unexpected_exception_fails_the_tries_it_hits_and_the_transport_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(self: Exchange, *_: object) -> None:
        raise ZeroDivisionError

    async with receiving() as receiver, sending_over_http() as sending:
        for method, code in (("reply", Code.CONNECTION), ("begin", Code.BLOCKED)):
            with monkeypatch.context() as patched:
                patched.setattr(Exchange, method, bug)
                replies = await sending.all([a_transmission(receiver.url) for _ in range(3)])
            for reply in replies:
                assert reply.failure is not None and reply.failure.code == code
                assert "ZeroDivisionError" in reply.failure.detail
            assert (await sending.one(a_transmission(receiver.url))).status == 200


async def test_header_values_outside_ascii_are_sent_as_utf_8() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        assert (await sending.one(a_transmission(receiver.url, headers=("x-name: Zoë ✓",)))).status == 200
        assert receiver.requests[0].header("x-name") == ["Zoë ✓"]


async def test_an_exception_in_the_done_callback_does_not_stop_the_transport() -> None:
    loop = asyncio.get_running_loop()
    troubles: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    async with receiving() as receiver, sending_over_http() as sending:
        sending.transport.start([a_transmission(receiver.url)])  # no one awaits it, so `done` raises a KeyError
        while not troubles:
            await asyncio.sleep(0)
        assert (await sending.one(a_transmission(receiver.url))).status == 200
    assert len(troubles) == 1


async def test_close_cuts_off_what_is_running_at_once_and_reports_nothing_more() -> None:
    async with receiving(lambda _: b"") as silent:
        async with sending_over_http() as sending:
            sending.start([a_transmission(silent.url, timeout_seconds=2 * PATIENCE_SECONDS) for _ in range(20)])
            while silent.connections < 20:
                await asyncio.sleep(0)
            await asyncio.wait_for(sending.transport.close(), PATIENCE_SECONDS)
            sending.transport.start([a_transmission(silent.url)])
            await asyncio.sleep(0)
        assert sending.batches == []


async def test_nothing_is_left_open_after_close() -> None:
    before = open_files()
    async with receiving() as receiver, sending_over_http() as sending:
        await sending.all([a_transmission(receiver.url) for _ in range(50)])
    while open_files() > before:  # the receiver closes its side when the event loop runs it
        await asyncio.sleep(0)


async def test_it_works_on_event_loops_of_systems_without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curl_loop, "readiness", LoopReadiness)
    async with receiving(lambda _: answer("200 OK", b"x" * 100_000)) as receiver, sending_over_http() as sending:
        payload = b"y" * 3_000_000
        replies = await sending.all([a_transmission(receiver.url, payload) for _ in range(20)])
        assert all(reply.status == 200 and reply.body_cut for reply in replies)
        assert (await sending.one(a_transmission("http://127.0.0.1:1/"))).failure is not None


async def test_resting_handles_do_not_hold_large_payloads() -> None:
    async with receiving() as receiver, sending_over_http() as sending:
        await sending.one(a_transmission(receiver.url, b"x" * 1_000_000))
        (resting,) = transport_of(sending)._resting
        assert not hasattr(resting, "transmission")
        resting.curl.setopt(pycurl.URL, "http://127.0.0.1:1/")  # the handle itself still works


def transport_of(sending: Sending) -> http.HttpTransport:
    assert isinstance(sending.transport, http.HttpTransport)
    return sending.transport


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def no_file_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
