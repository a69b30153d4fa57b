"""The processes of isolated handlers are started, reused, replaced and stopped; attempts wait until one is free."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from doorstep.clock import AnchoredClock, seconds
from doorstep.model.attempt import Code
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.handler_replies import received
from doorstep.transports.isolation import Isolation, IsolationOptions, Place, Report, isolations, place_of
from doorstep.transports.isolation import pool as pooling
from doorstep.transports.isolation import pool as processes
from doorstep.transports.isolation.pool import HandlerProcess, Job, ProcessPool
from doorstep.transports.transport import Transmission
from tests.integration.transports import isolated_functions as functions
from tests.integration.transports.isolating import (
    Patient,
    an_attempt,
    handler_processes,
    isolating,
    isolating_module,
    result_of,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.sending import a_claim


@pytest.mark.parametrize("noticed", [False, True], ids=["a moment ago", "a while ago"])
async def test_a_process_that_died_while_it_had_nothing_to_do_costs_no_attempt(noticed: bool) -> None:
    async with isolating() as sending:
        before = result_of(await sending.one(an_attempt("report")))["pid"]
        kill(before)
        if noticed:
            while sending.transport._pools["it"]._idle:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        assert result_of(await sending.one(an_attempt("report")))["pid"] != before


def kill(pid: int) -> None:
    """Kill a process and return when it is dead; the event loop does not run in the meantime."""
    psutil.Process(pid).kill()
    with contextlib.suppress(ChildProcessError):  # an asyncio thread has reaped it first
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_a_process_that_dies_before_it_has_read_of_an_attempt_has_not_begun_it() -> None:
    async with isolating() as sending:
        process = psutil.Process(result_of(await sending.one(an_attempt("report")))["pid"])
        process.suspend()
        (future,) = sending.start([an_attempt("report")])
        while not sending.transport._pools["it"]._busy:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        process.kill()
        reply = await future
        assert not reply.started and reply.failure is not None
        begun = await sending.one(an_attempt("exit"))  # the control: this process has read the attempt
        assert begun.started and begun.failure is not None


async def test_one_that_waited_for_a_process_longer_than_its_lease_allows_has_not_begun_and_is_not_made() -> None:
    async with isolating() as sending:
        lease_until = AnchoredClock().now() + seconds(5.0)
        claim = a_claim(event_type="exit", lease_until=lease_until)
        reply = await sending.one(Transmission(claim, "it", (), b"", 5.0))
        assert reply.failure is not None and reply.failure.code == Code.TIMEOUT and not reply.started
        assert reply.failure.message == "No process for the handler was ready in time."
        done = await sending.one(an_attempt("report"))  # by the process that was still starting
        assert result_of(done) and done.started


async def test_a_process_that_never_gets_ready_is_ended_and_told_of_and_the_next_attempt_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging"
    hanging.touch()
    source = f"import os, time\nwhile os.path.exists({str(hanging)!r}): time.sleep(0.01)\ndef do(_): return 'ok'"
    async with isolating_module(source, tmp_path, monkeypatch) as sending:
        monkeypatch.setattr(processes, "_START_SECONDS_MAX", 0.5)
        failure = (await sending.one(an_attempt("report"))).failure
        assert failure is not None and failure.code == Code.HANDLER_CRASHED
        assert failure.message == "The handler's process could not start: it was not ready within 0.5 s, and was ended."
        monkeypatch.setattr(processes, "_START_SECONDS_MAX", 60)
        hanging.unlink()
        assert (await sending.one(an_attempt("report"))).body == b"ok"


async def test_what_a_module_says_when_it_cannot_be_imported_is_for_operators_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with isolating_module("raise RuntimeError('no such login: canary')", tmp_path, monkeypatch) as sending:
        failure = (await sending.one(an_attempt("report"))).failure
    assert failure is not None
    assert failure.message == "The handler's process could not load its function: it raised RuntimeError."
    assert "no such login: canary" in failure.detail


async def test_paths_of_any_kind_are_searched_for_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    async with isolating() as sending:
        assert result_of(await sending.one(an_attempt("report")))


async def test_a_program_that_goes_to_another_folder_does_not_take_its_handlers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths in the program, such as that of its database, mean the same in every process."""
    before = os.getcwd()
    isolated = isolations({"it": functions.do}, {"it": IsolationOptions(1)}, None, None)
    monkeypatch.setattr(sys, "path", [*sys.path, before])
    monkeypatch.chdir(tmp_path)
    sending = Patient(HandlerTransport(AnchoredClock(), {"it": functions.do}, isolated=isolated))
    assert result_of(await sending.one(an_attempt("report")))["folder"] == before
    await sending.transport.close()


async def test_after_a_process_that_could_not_be_started_there_is_a_pause_and_only_its_job_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = 0

    async def start(*_: object) -> None:
        nonlocal starts
        starts += 1
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(HandlerProcess, "start", start)
    monkeypatch.setattr(pooling, "_PAUSE_SECONDS", 60)
    async with isolating(processes_max=2) as sending:
        jobs = sending.start([an_attempt("report")])
        failure = (await jobs[0]).failure
        waiting = sending.start([an_attempt("report")])
        for _ in range(100):
            await asyncio.sleep(0)
        assert starts == 1 and not waiting[0].done()
    assert failure is not None and failure.code == Code.HANDLER_CRASHED
    assert failure.message == "The handler's process could not be used: ValueError."
    assert "nobody foresaw this" in failure.detail


async def test_a_job_that_is_given_up_on_its_way_to_an_idle_process_is_not_begun_and_costs_nothing() -> None:
    pool = ProcessPool(Isolation(place=place_of("it", functions.do, None, None), processes_max=1))
    content = msgspec.msgpack.encode(received(a_claim(event_type="report")))
    begun: list[str] = []
    reports: asyncio.Queue[Report] = asyncio.Queue()

    def job(name: str) -> Job:
        return Job(content, lambda: begun.append(name), reports.put_nowait)

    pool.submit(job("first"))
    first = await asyncio.wait_for(reports.get(), PATIENCE_SECONDS)
    while not pool._idle:
        await asyncio.sleep(0)
    unwanted = job("unwanted")
    pool.submit(unwanted)
    pool.give_up(unwanted)
    pool.submit(job("next"))
    following = await asyncio.wait_for(reports.get(), PATIENCE_SECONDS)
    assert begun == ["first", "next"]
    assert json.loads(following.body)["pid"] == json.loads(first.body)["pid"]
    while not pool._idle:
        await asyncio.sleep(0)
    closing = asyncio.create_task(pool.close())
    pool.submit(job("too late"))
    await asyncio.wait_for(closing, PATIENCE_SECONDS)
    assert begun == ["first", "next"]


async def test_a_process_with_nothing_to_do_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "_IDLE_SECONDS", 0.0)
    async with isolating() as sending:
        await sending.one(an_attempt("report"))
        while handler_processes():
            await asyncio.sleep(0)
        assert result_of(await sending.one(an_attempt("report")))


async def test_close_cuts_off_what_is_under_way_and_leaves_no_process_behind() -> None:
    async with isolating() as sending:
        await sending.one(an_attempt("report"))
        sending.start([an_attempt("hang")])
        await sending.transport.close()
        assert not handler_processes() and sending.batches == [1]


async def test_a_function_that_cannot_be_loaded_fails_the_attempt_with_the_reason() -> None:
    async with isolating() as sending:
        broken = Isolation(place=Place(module="no_such_module", attribute="do"), processes_max=1)
        sending.transport._isolated["it"] = broken  # type: ignore[attr-defined]
        failure = (await sending.one(an_attempt("report"))).failure
    assert failure is not None and failure.code == Code.HANDLER_CRASHED
    assert failure.message == "The handler's process could not load its function: it raised ModuleNotFoundError."
    assert "No module named 'no_such_module'" in failure.detail
