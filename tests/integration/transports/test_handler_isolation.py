"""Isolated handlers: whatever a handler does to its process affects only that attempt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from doorstep.components import Registry
from doorstep.errors import ConfigError
from doorstep.model.attempt import Category, Code
from doorstep.transports.handler_replies import Handler
from doorstep.transports.isolation import find, isolation_options, place_of
from tests.integration.transports import isolated_functions as functions
from tests.integration.transports.isolating import an_attempt, handler_processes, isolating, result_of
from tests.support.patience import PATIENCE_SECONDS


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


async def test_payload_types_and_unanswered_calls_are_understood_as_in_the_worker() -> None:
    async with isolating(functions.ship) as sending:
        assert result_of(await sending.one(an_attempt("ship", b'{"number": 7}'))) == {"number": 7}
        refused = (await sending.one(an_attempt("ship", b'{"number": "canary"}'))).failure
        assert refused is not None and (refused.code, refused.category) == (Code.INVALID_FORMAT, Category.PERMANENT)
        assert refused.message == "The payload does not match Order: number: expected `int`, got `str`."
        unanswered = (await sending.one(an_attempt("call", b'{"number": 7}'))).failure
        assert unanswered is not None and (unanswered.code, unanswered.category) == (Code.TIMEOUT, Category.TRANSIENT)


@pytest.mark.parametrize(
    ("deed", "code", "sentence"),
    [("rant", "CARRIER_99", "no such number"), ("mumble", "CARRIER_?", "no such file: ?")],
)
async def test_what_a_handler_says_is_kept_as_far_as_it_can_be_and_does_not_end_its_process(
    deed: str, code: str, sentence: str
) -> None:
    async with isolating() as sending:
        before = result_of(await sending.one(an_attempt("report")))["pid"]
        failure = (await sending.one(an_attempt(deed))).failure
        assert failure is not None and failure.category is Category.PERMANENT
        assert failure.code.startswith(code) and len(failure.code) <= 100
        assert failure.message.startswith(sentence) and len(failure.message) <= 2_000
        assert result_of(await sending.one(an_attempt("report")))["pid"] == before


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ("exit", "The handler's process ended itself with exit code 3."),
        ("segfault", "The handler's process was ended by SIGSEGV (segmentation fault)."),
        ("hoard", "The handler needed more memory than the 200 MB that it may use."),
        ("babble", "The handler's process wrote something other than a report to its connection with the worker."),
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
        await all_ended(pids)
        assert result_of(await sending.one(an_attempt("report")))


async def all_ended(pids: Path) -> None:
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(psutil.NoSuchProcess):
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0)


async def test_what_a_handler_has_started_is_ended_with_its_process_also_when_that_ended_itself(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    payload = json.dumps({"pids": str(pids)}).encode()
    async with isolating() as sending:
        failure = (await sending.one(an_attempt("exit with child", payload))).failure
        assert failure is not None and failure.message == "The handler's process ended itself with exit code 7."
        await asyncio.wait_for(all_ended(pids), PATIENCE_SECONDS)


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
        assert sending.transport.slots("it") == 2 and sending.transport.slots("another") is None


# -- locating handler functions ------------------------------------------------------------------------------


class Owner:
    """A minimal substitute for a Doorstep."""

    def __init__(self) -> None:
        self.registry = Registry(60.0)


owner = Owner()
owner.registry.handlers["wrapped"] = lambda received: received


def make_owner() -> Owner:
    return owner


def test_a_function_is_found_by_its_name_in_its_module() -> None:
    for function in (functions.do, functions.do_async, functions.Shelf.do):
        assert find(place_of("it", function, None, None)) is function


def test_a_function_without_a_name_of_its_own_is_found_through_the_doorstep_beside_it() -> None:
    function = owner.registry.handlers["wrapped"]
    assert find(place_of("wrapped", function, owner, None)) is function


@pytest.mark.parametrize("name", ["owner", "make_owner"])
def test_what_the_command_line_names_is_where_it_is_found(name: str) -> None:
    assert find(place_of("wrapped", object(), None, f"{__name__}:{name}")) is owner.registry.handlers["wrapped"]


def test_a_function_that_no_other_process_could_import_is_refused_with_what_to_do() -> None:
    def local(_: object) -> None: ...

    for hidden in (local, lambda _: None, object()):
        with pytest.raises(ConfigError, match="handler 'it' cannot be isolated: .* define it at the top of a module"):
            place_of("it", hidden, Owner(), None)


def test_a_memory_limit_needs_a_process_and_room_for_python() -> None:
    with pytest.raises(ConfigError, match="also set isolated=True"):
        isolation_options("it", False, None, 100)
    with pytest.raises(ConfigError, match="must be 32 or more, got 8"):
        isolation_options("it", True, None, 8)
    assert isolation_options("it", False, None, None) is None
