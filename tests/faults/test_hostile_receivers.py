"""Receivers that misbehave cost their own attempt and no more: not its time, not our memory, not their neighbours.

Each script runs several times at once beside ordinary deliveries, whose times are compared with what is normal.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from doorstep.model.outcome import Code, Reply
from tests.faults import hostile_receiver as scripts
from tests.faults.hostile_receiver import MIB, Hostile, hostile
from tests.unit.wire.certificates import certificate
from tests.unit.wire.receiver import answer, receiving
from tests.unit.wire.sending import a_transmission, sending_over_http

TIMEOUT_SECONDS = 0.5
SLACK_SECONDS = 0.3
BODY_BYTES_MAX = 16_384
NEIGHBOURS = 50
NEIGHBOUR_SECONDS_MAX = 0.3
SOCKET_BUFFER_BYTES = 12 * MIB
"""What the kernel takes in for a connection before we have read any of it; the rest must never have been sent."""

Script = Callable[[Hostile, socket.socket], None]

FAILURES: dict[Script, str] = {
    scripts.dribbles_headers: Code.TIMEOUT,
    scripts.dribbles_body: Code.TIMEOUT,
    scripts.hangs: Code.TIMEOUT,
    scripts.hangs_after_the_request: Code.TIMEOUT,
    scripts.resets_in_the_body: Code.CONNECTION,
    scripts.resets_at_once: Code.CONNECTION,
    scripts.closes_in_the_body: Code.CONNECTION,
    scripts.closes_at_once: Code.CONNECTION,
    scripts.sends_100_000_headers: Code.BAD_RESPONSE,
    scripts.sends_one_endless_header: Code.BAD_RESPONSE,
    scripts.floods_with_interim_answers: Code.BAD_RESPONSE,
    scripts.talks_garbage: Code.BAD_RESPONSE,
    scripts.bombs_by_transfer_encoding: Code.BAD_RESPONSE,
}

CUT_SHORT: list[Script] = [
    scripts.never_ends_its_chunks,
    scripts.bombs,
    scripts.claims_a_huge_length,
    scripts.claims_an_impossible_length,
]


def named(script: object) -> str:
    return getattr(script, "__name__", str(script))


@pytest.mark.parametrize(("script", "code"), FAILURES.items(), ids=named)
async def test_a_hostile_answer_ends_in_its_code_in_time_and_slows_nobody(script: Script, code: str) -> None:
    with hostile(script) as receiver:
        replies = await attempts_beside_neighbours(receiver.url)
        for reply in replies:
            assert reply.failure is not None and reply.failure.code == code, reply.failure
            assert reply.failure.message.endswith(".")
            check_bounds(reply)
        assert receiver.bytes_sent <= len(replies) * SOCKET_BUFFER_BYTES


@pytest.mark.parametrize("script", CUT_SHORT, ids=named)
async def test_an_answer_without_end_is_read_up_to_the_cap_and_its_status_counts(script: Script) -> None:
    memory = psutil.Process().memory_info().rss
    with hostile(script) as receiver:
        replies = await attempts_beside_neighbours(receiver.url)
        for reply in replies:
            assert (reply.status, reply.failure, reply.body_cut) == (200, None, True), reply.failure
            assert len(reply.body) == BODY_BYTES_MAX
            check_bounds(reply)
        assert receiver.bytes_sent <= len(replies) * SOCKET_BUFFER_BYTES
    assert psutil.Process().memory_info().rss - memory < 32 * MIB


async def test_a_compressed_body_is_kept_as_it_came_and_never_unpacked() -> None:
    with hostile(scripts.bombs) as receiver:
        async with sending_over_http(body_bytes_max=BODY_BYTES_MAX) as sending:
            reply = await sending.one(a_transmission(receiver.url))
    assert reply.body.startswith(b"\x1f\x8b") and len(reply.body) == BODY_BYTES_MAX


async def test_a_receiver_that_never_reads_is_a_timeout() -> None:
    with hostile(scripts.never_reads) as receiver:
        async with sending_over_http() as sending:
            payload = b"x" * 16 * MIB
            reply = await sending.one(a_transmission(receiver.url, payload, timeout_seconds=TIMEOUT_SECONDS))
    assert reply.failure is not None and reply.failure.code == Code.TIMEOUT
    check_bounds(reply)


async def test_a_handshake_that_hangs_is_a_timeout() -> None:
    with hostile(scripts.hangs) as receiver:
        for reply in await attempts_beside_neighbours(receiver.url.replace("http://", "https://")):
            assert reply.failure is not None and reply.failure.code == Code.TIMEOUT
            check_bounds(reply)


async def test_a_handshake_that_is_cut_off_is_a_broken_connection_and_not_a_matter_of_trust() -> None:
    for script in (scripts.resets_at_once, scripts.talks_garbage):
        with hostile(script) as receiver:
            async with sending_over_http() as sending:
                reply = await sending.one(a_transmission(receiver.url.replace("http://", "https://")))
        assert reply.failure is not None
        expected = Code.CONNECTION if script is scripts.resets_at_once else (Code.TLS, Code.CONNECTION, Code.TIMEOUT)
        assert reply.failure.code in expected, reply.failure


async def test_a_certificate_that_nobody_vouches_for_is_a_tls_failure_and_nothing_is_sent(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path)
    async with receiving(tls=context) as receiver, sending_over_http() as sending:
        reply = await sending.one(a_transmission(receiver.url))
        assert reply.failure is not None and reply.failure.code == Code.TLS and not receiver.requests


async def test_a_certificate_for_another_host_is_a_tls_failure_and_nothing_is_sent(tmp_path: Path) -> None:
    context, trusted = certificate(tmp_path, address="127.0.0.9")
    async with receiving(tls=context) as receiver, sending_over_http(ca_file=trusted) as sending:
        reply = await sending.one(a_transmission(receiver.url))
        assert reply.failure is not None and reply.failure.code == Code.TLS and not receiver.requests


@pytest.mark.parametrize(
    "script",
    [scripts.answers_once_then_closes_the_idle_connection, scripts.answers_once_then_resets_at_the_next_request],
    ids=named,
)
async def test_a_kept_connection_that_died_is_replaced_without_a_failed_attempt(script: Script) -> None:
    with hostile(script) as receiver:
        async with sending_over_http() as sending:
            replies = [await sending.one(a_transmission(receiver.url)) for _ in range(10)]
        assert [(reply.status, reply.failure) for reply in replies] == [(200, None)] * 10
        assert receiver.connections == 10


async def test_a_hanging_name_server_is_a_timeout_delays_no_other_name_and_does_not_hold_up_the_end() -> None:
    """In a network of its own, where the only name server never answers."""
    inside = ["unshare", "--net", "--mount", sys.executable, "-c", textwrap.dedent(_IN_A_NETWORK_WITH_DEAD_DNS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = await asyncio.to_thread(subprocess.run, inside, capture_output=True, text=True, env=environment, timeout=30)
    if "unshare failed" in ran.stderr or "Operation not permitted" in ran.stderr:
        pytest.skip("this machine does not let us make a network of our own")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == ["TIMEOUT"] * 40 + ["200"]


_IN_A_NETWORK_WITH_DEAD_DNS = """
    import asyncio, os, socket, subprocess, tempfile, time
    from tests.unit.wire.receiver import receiving
    from tests.unit.wire.sending import a_transmission, sending_over_http

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for path, text in (("/etc/resolv.conf", "nameserver 127.0.0.1\\n"), ("/etc/nsswitch.conf", "hosts: dns\\n")):
        file = tempfile.NamedTemporaryFile("w", delete=False)
        file.write(text)
        file.close()
        os.chmod(file.name, 0o644)
        subprocess.run(["mount", "--bind", file.name, path], check=True)
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 53))

    async def main():
        async with receiving() as receiver, sending_over_http() as sending:
            names = [f"http://shop-{n}.example/" for n in range(40)]
            hanging = sending.start([a_transmission(name, timeout_seconds=0.5) for name in names])
            beside = await sending.one(a_transmission(receiver.url, timeout_seconds=0.5))
            began = time.monotonic()
            for reply in await asyncio.gather(*hanging):
                print(reply.failure.code)
            print(beside.status)
            assert time.monotonic() - began < 1
            began = time.monotonic()
        assert time.monotonic() - began < 0.5, "close waits for the resolver"

    asyncio.run(main())
    os._exit(0)
"""


async def attempts_beside_neighbours(url: str, count: int = 5) -> list[Reply]:
    """The replies of hostile attempts, and the proof that ordinary ones beside them were as fast as ever."""
    async with receiving(lambda _: answer()) as neighbour, sending_over_http(body_bytes_max=BODY_BYTES_MAX) as sending:
        await sending.one(a_transmission(neighbour.url))
        began = time.monotonic()
        suffering = sending.start([a_transmission(url, timeout_seconds=TIMEOUT_SECONDS) for _ in range(count)])
        beside = await sending.all([a_transmission(neighbour.url) for _ in range(NEIGHBOURS)])
        assert time.monotonic() - began < NEIGHBOUR_SECONDS_MAX
        assert all(reply.status == 200 for reply in beside)
        replies = await asyncio.wait_for(asyncio.gather(*suffering), 10)
        assert (await sending.one(a_transmission(neighbour.url))).status == 200
        return replies


def check_bounds(reply: Reply) -> None:
    """An attempt never outlasts its timeout nor reads more than its cap."""
    assert (reply.finished_at - reply.started_at) / 1e6 < TIMEOUT_SECONDS + SLACK_SECONDS
    assert len(reply.body) <= BODY_BYTES_MAX and len(reply.headers) <= 16_384
