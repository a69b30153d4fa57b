"""Host names are resolved in threads, one lookup per name at a time, and a slow lookup never delays other attempts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from doorstep.model.attempt import Code
from doorstep.transports import dns_cache
from doorstep.transports.curl_loop import EpollReadiness
from tests.support.patience import PATIENCE_SECONDS
from tests.support.raw_receiver import receiving
from tests.support.sending import Sending, a_transmission, sending_over_http

SHORT = 0.05


class Resolver:
    """Resolves every name to 127.0.0.1, except those that hang until `free` is set, and those that fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.free = threading.Event()
        self.failing = False

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if "hangs" in host:
            self.free.wait()
        if self.failing:
            raise OSError("Name or service not known")
        return ["127.0.0.1"]


async def test_a_name_is_looked_up_once_for_all_tries_and_urls_that_need_it() -> None:
    resolver = Resolver()
    async with receiving() as receiver, sending_over_http(resolve=resolver) as sending:
        urls = [f"http://shop.example:{receiver.port}/{n % 3}" for n in range(30)]
        first = await sending.all([a_transmission(url) for url in urls])
        later = await sending.all([a_transmission(url) for url in urls])
        assert {reply.status for reply in first + later} == {200} and resolver.asked == ["shop.example"]
        assert {request.header("host")[0] for request in receiver.requests} == {f"shop.example:{receiver.port}"}
    assert all(0 < reply.timings.dns < reply.timings.connect <= reply.timings.first_byte for reply in first[:1])
    assert all(reply.timings.dns == 0 for reply in later)


async def test_names_that_hang_time_out_and_keep_no_other_name_waiting() -> None:
    resolver = Resolver()
    async with receiving() as receiver, sending_over_http(resolve=resolver) as sending:
        names = [a_transmission(f"http://hangs-{n}.example/", timeout_seconds=SHORT) for n in range(100)]
        hanging = sending.start(names)
        assert (await sending.one(a_transmission(f"http://shop.example:{receiver.port}/"))).status == 200
        for reply in await asyncio.gather(*hanging):
            assert reply.failure is not None and reply.failure.code == Code.TIMEOUT
        resolver.free.set()


async def test_many_tries_of_one_hanging_name_hold_one_thread_only() -> None:
    resolver = Resolver()
    async with sending_over_http(resolve=resolver) as sending:
        await sending.all([a_transmission("http://hangs.example/", timeout_seconds=SHORT) for _ in range(100)])
        assert resolver.asked == ["hangs.example"]
        resolver.free.set()


async def test_a_lookup_that_ends_in_time_leaves_the_rest_of_the_timeout_to_the_request() -> None:
    resolver = Resolver()
    async with receiving(lambda _: b"") as silent, sending_over_http(resolve=resolver) as sending:
        target = f"http://hangs.example:{silent.port}/"
        (waiting,) = sending.start([a_transmission(target, timeout_seconds=0.3)])
        asyncio.get_running_loop().call_later(0.15, resolver.free.set)
        reply = await waiting
        assert silent.connections == 1
    assert reply.failure is not None and reply.failure.code == Code.TIMEOUT
    assert 150_000 <= reply.timings.dns < 300_000 <= reply.finished_at - reply.started_at < 450_000


async def test_addresses_stay_in_use_while_the_name_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_cache, "_FRESH_SECONDS", 0)
    monkeypatch.setattr(dns_cache, "_PAUSE_SECONDS", 0)
    resolver = Resolver()
    async with receiving() as receiver, sending_over_http(resolve=resolver) as sending:
        target = f"http://shop.example:{receiver.port}/"
        assert (await sending.one(a_transmission(target))).status == 200
        resolver.failing = True
        while len(resolver.asked) < 5:
            assert (await sending.one(a_transmission(target))).status == 200


async def test_a_name_that_was_never_resolved_is_a_dns_failure_and_is_asked_for_again_next_time() -> None:
    resolver = Resolver()
    resolver.failing = True
    async with receiving() as receiver, sending_over_http(resolve=resolver) as sending:
        target = f"http://shop.example:{receiver.port}/"
        reply = await sending.one(a_transmission(target))
        assert reply.failure is not None and reply.failure.code == Code.DNS
        assert "not known" in reply.failure.detail
        resolver.failing = False
        assert (await sending.one(a_transmission(target))).status == 200


async def test_close_does_not_wait_for_a_lookup_and_reports_nothing_more() -> None:
    resolver = Resolver()
    async with sending_over_http(resolve=resolver) as sending:
        sending.start([a_transmission("http://hangs.example/", timeout_seconds=2 * PATIENCE_SECONDS) for _ in range(3)])
        while not resolver.asked:
            await asyncio.sleep(0)
        await asyncio.wait_for(sending.transport.close(), PATIENCE_SECONDS)
    resolver.free.set()
    assert sending.batches == []


async def test_tries_that_wait_for_a_name_take_up_places() -> None:
    resolver = Resolver()
    async with receiving() as receiver, sending_over_http(resolve=resolver, connections_max=2) as sending:
        hanging = sending.start([a_transmission("http://hangs.example/", timeout_seconds=SHORT) for _ in range(2)])
        (behind,) = sending.start([a_transmission(receiver.url)])
        await asyncio.gather(*hanging)
        assert (await behind).status == 200
        resolver.free.set()


async def test_a_client_that_was_restarted_is_told_the_addresses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver()
    async with receiving() as receiver, sending_over_http(resolve=resolver) as sending:
        target = f"http://shop.example:{receiver.port}/"
        assert (await sending.one(a_transmission(target))).status == 200
        await break_once(sending, monkeypatch)
        assert (await sending.one(a_transmission(target))).status == 200
        assert resolver.asked == ["shop.example"]


async def break_once(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(self: EpollReadiness, fd: int, wanted: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(EpollReadiness, "watch", out_of_memory)
        reply = await sending.one(a_transmission("http://127.0.0.1:1/"))
    assert reply.failure is not None and "restarted" in reply.failure.message
