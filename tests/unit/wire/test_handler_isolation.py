"""Handlers in processes of their own: whatever one does to its process costs that attempt, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from doorstep.clock import AnchoredClock, seconds
from doorstep.errors import ConfigError
from doorstep.model.outcome import Category, Code, Reply
from doorstep.wire.handler_transport import Handler, HandlerTransport
from doorstep.wire.isolation import pool as pooling
from doorstep.wire.isolation.places import find, place_of
from doorstep.wire.isolation.pool import Isolation
from doorstep.wire.isolation.wishes import wish_of
from doorstep.wire.transport import Transmission
from tests.unit.wire import isolated_functions as functions
from tests.unit.wire.sending import Sending, a_claim

PAYLOAD = b'{"card": "4111 1111 canary"}'


def an_attempt(deed: str, payload: bytes = PAYLOAD, timeout_seconds: float = 20.0) -> Transmission:
    """Its lease is long: to start a process takes a busy machine a while."""
    lease_until = AnchoredClock().now() + seconds(120)
    claim = a_claim(payload, event_type=deed, lease_until=lease_until, metadata=b'{"from": "here"}')
    return Transmission(claim, "it", (), b"", timeout_seconds)


@asynccontextmanager
async def isolating(
    function: Handler = functions.do, processes_max: int = 1, memory_mb_max: int | None = None
) -> AsyncIterator[Sending]:
    place = place_of("it", function, None, None)
    isolation = Isolation(place=place, processes_max=processes_max, memory_mb_max=memory_mb_max)
    transport = HandlerTransport(AnchoredClock(), {"it": function}, isolated={"it": isolation})
    try:
        yield Patient(transport)
    finally:
        await transport.close()
        assert not handler_processes()


class Patient(Sending):
    """Also waits for processes to start, on a machine that has other things to do."""

    async def all(self, transmissions: Sequence[Transmission]) -> list[Reply]:
        return await asyncio.wait_for(asyncio.gather(*self.start(transmissions)), 60)


def handler_processes() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [one for one in children if one.status() != psutil.STATUS_ZOMBIE and _is_ours(one)]


def _is_ours(process: psutil.Process) -> bool:
    return any("isolation.child" in part for part in process.cmdline())


def result_of(reply: Reply) -> Any:
    assert reply.failure is None, reply.failure
    return json.loads(reply.body)


@pytest.mark.parametrize("function", [functions.do, functions.do_async, functions.Shelf.do])
async def test_a_handler_gets_the_delivery_in_another_process_and_what_it_returns_is_kept(function: Handler) -> None:
    async with isolating(function) as sending:
        first, second = [result_of(await sending.one(an_attempt("report"))) for _ in range(2)]
    assert first["pid"] != os.getpid() and first["metadata"] == {"from": "here"} and first["org"]
    assert second["pid"] == first["pid"]  # one process makes many attempts


@pytest.mark.parametrize("function", [functions.do, functions.do_async])
async def test_what_a_handler_raises_is_told_as_if_it_ran_in_the_worker_and_its_process_goes_on(
    function: Handler,
) -> None:
    async with isolating(function) as sending:
        before = result_of(await sending.one(an_attempt("report")))["pid"]
        refused = await sending.one(an_attempt("refuse"))
        assert refused.failure is not None and refused.body == b'{"their":"words"}'
        assert (refused.failure.code, refused.failure.category) == ("CARRIER_9", Category.PERMANENT)
        for deed, name in {
            "quote": "ValueError",
            "leave": "SystemExit",
            "interrupt": "KeyboardInterrupt",
            "recurse": "RecursionError",
        }.items():
            failure = (await sending.one(an_attempt(deed))).failure
            assert failure is not None and failure.message == f"The handler raised {name}."
            assert failure.code == Code.HANDLER_ERROR
            assert "isolated_functions.py" in failure.detail and "canary" not in failure.detail
        assert result_of(await sending.one(an_attempt("report")))["pid"] == before


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ("exit", "The handler's process ended itself with exit code 3."),
        ("segfault", "The handler's process was ended by SIGSEGV (segmentation fault)."),
        ("hoard", "The handler needed more memory than the 200 MB that it may use."),
        ("babble", "The handler's process wrote something else than a report to its connection with the worker."),
    ],
)
async def test_what_ends_its_process_costs_one_attempt_and_the_next_has_another_process(
    deed: str, sentence: str
) -> None:
    async with isolating(memory_mb_max=200) as sending:
        before = result_of(await sending.one(an_attempt("report")))["pid"]
        failure = (await sending.one(an_attempt(deed))).failure
        assert failure is not None and (failure.code, failure.message) == (Code.HANDLER_CRASHED, sentence)
        assert result_of(await sending.one(an_attempt("report")))["pid"] != before


async def test_rubbish_that_is_returned_is_left_out_and_a_closed_output_is_the_process_s_own() -> None:
    async with isolating() as sending:
        assert (await sending.one(an_attempt("rubbish"))).body == b""
        assert (await sending.one(an_attempt("close output"))).body == b"closed"
        assert (await sending.one(an_attempt("rubbish"))).failure is None
    assert not sys.stdout.closed


async def test_a_copy_that_a_handler_makes_of_its_process_reports_nothing() -> None:
    async with isolating() as sending:
        forked = result_of(await sending.one(an_attempt("fork")))
        assert forked == result_of(await sending.one(an_attempt("report")))["pid"]
        assert sending.batches == [1, 1]


async def test_a_handler_that_hangs_is_ended_with_everything_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    payload = json.dumps({"pids": str(pids)}).encode()
    async with isolating() as sending:
        await sending.one(an_attempt("report"))
        failure = (await sending.one(an_attempt("hang with child", payload, timeout_seconds=0.5))).failure
        assert failure is not None and failure.code == Code.TIMEOUT
        assert failure.message == "The handler did not return within 0.5 s."
        for pid in map(int, pids.read_text().split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    await asyncio.sleep(0)
        assert result_of(await sending.one(an_attempt("report")))


async def test_neighbours_of_one_that_hangs_or_dies_are_served_by_the_other_processes() -> None:
    async with isolating(processes_max=2) as sending:
        stuck = sending.start([an_attempt("hang", timeout_seconds=2), an_attempt("exit")])
        good = await sending.all([an_attempt("report") for _ in range(10)])
        assert all(result_of(reply) for reply in good)
        codes = {failure.code for future in stuck if (failure := (await future).failure)}
        assert codes == {Code.TIMEOUT, Code.HANDLER_CRASHED}


async def test_there_are_never_more_processes_than_were_allowed_and_the_worker_is_told_of_it() -> None:
    async with isolating(processes_max=2) as sending:
        replies = await sending.all([an_attempt("report") for _ in range(50)])
        assert len({result_of(reply)["pid"] for reply in replies}) <= 2
        assert len(handler_processes()) <= 2
        assert sending.transport.places("it") == 2 and sending.transport.places("another") is None


async def test_one_that_waited_for_a_process_longer_than_its_lease_allows_is_a_timeout() -> None:
    async with isolating() as sending:
        lease_until = AnchoredClock().now() + seconds(5.25)
        claim = a_claim(event_type="report", lease_until=lease_until)
        failure = (await sending.one(Transmission(claim, "it", (), b"", 5.0))).failure
        assert failure is not None and failure.code == Code.TIMEOUT
        assert failure.message == "No process for the handler was ready in time."


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
        gone = place_of("it", functions.do, None, None)
        broken = Isolation(place=type(gone)(module="no_such_module", attribute="do"), processes_max=1)
        sending.transport._isolated["it"] = broken  # type: ignore[attr-defined]
        failure = (await sending.one(an_attempt("report"))).failure
    assert failure is not None and failure.code == Code.HANDLER_CRASHED
    assert failure.message == (
        "The handler's process could not load its function: ModuleNotFoundError: No module named 'no_such_module'"
    )


# -- where functions are found -------------------------------------------------------------------------------


class Owner:
    """Stands in for a Doorstep."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[..., object]] = {}


owner = Owner()
owner.handlers["wrapped"] = lambda received: received


def make_owner() -> Owner:
    return owner


def test_a_function_is_found_by_its_name_in_its_module() -> None:
    for function in (functions.do, functions.do_async, functions.Shelf.do):
        assert find(place_of("it", function, None, None)) is function


def test_a_function_without_a_name_of_its_own_is_found_through_the_doorstep_beside_it() -> None:
    function = owner.handlers["wrapped"]
    assert find(place_of("wrapped", function, owner, None)) is function


@pytest.mark.parametrize("name", ["owner", "make_owner"])
def test_what_the_command_line_names_is_where_it_is_found(name: str) -> None:
    assert find(place_of("wrapped", object(), None, f"{__name__}:{name}")) is owner.handlers["wrapped"]


def test_a_function_that_no_other_process_could_import_is_refused_with_what_to_do() -> None:
    def local(_: object) -> None: ...

    for hidden in (local, lambda _: None, object()):
        with pytest.raises(ConfigError, match="handler 'it' cannot be isolated: .* define it at the top of a module"):
            place_of("it", hidden, Owner(), None)


def test_a_memory_limit_needs_a_process_and_room_for_python() -> None:
    with pytest.raises(ConfigError, match="say isolated=True too"):
        wish_of("it", False, None, 100)
    with pytest.raises(ConfigError, match="must be 32 or more, got 8"):
        wish_of("it", True, None, 8)
    assert wish_of("it", False, None, None) is None
