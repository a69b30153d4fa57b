"""The log never blocks the engine, reports what it had to drop, and redacts secrets."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from doorstep.telemetry.facts import Format, Notice, json_lines, text_format
from doorstep.telemetry.logs import LogOutput, LogWriter, Routing, embedded_log, open_log
from doorstep.telemetry.redaction import Secrets
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.telemetry.test_logs import AT, failure, transition


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        for end in (reading, writing):
            try:
                os.close(end)
            except OSError:
                pass


def read_all(reading: int) -> bytes:
    with open(reading, "rb", closefd=False) as file:
        return file.read()


def test_what_was_given_before_the_close_is_written() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, output=writing)
        writer([transition()])
        writer([failure(None), transition()])
        writer.close()
        os.close(writing)
        assert [json.loads(line)["event"] for line in read_all(reading).splitlines()] == [
            "status_transition", "delivery_failure", "status_transition",
        ]  # fmt: skip


def test_lines_below_the_level_are_left_out() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, level="error", output=writing)
        writer([transition(), failure(AT), failure(None)])
        writer.close()
        os.close(writing)
        assert [json.loads(line)["level"] for line in read_all(reading).splitlines()] == ["error"]


def test_a_closed_output_neither_raises_nor_stops_the_writer() -> None:
    with pipe() as (reading, writing):
        os.close(reading)
        writer = LogWriter(json_lines, output=writing)
        for _ in range(3):
            writer([transition()])
        writer.close()
        assert not writer.alive


def test_a_reader_that_does_not_read_never_blocks_the_engine_and_is_told_what_it_missed() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, output=writing, waiting_max=2_000)
        for _ in range(30):
            writer([transition()] * 500)  # 15,000 lines of 290 bytes each: far more than a pipe and the queue hold
        collected: list[bytes] = []
        reader = threading.Thread(target=lambda: collected.append(read_all(reading)))
        reader.start()
        writer.close(timeout_seconds=PATIENCE_SECONDS)
        os.close(writing)
        reader.join()
        written = [json.loads(line) for line in collected[0].splitlines()]
        missed = sum(line["count"] for line in written if line["event"] == "notice")
        transitions = sum(line["event"] == "status_transition" for line in written)
        assert missed > 0
        assert transitions + missed == 15_000


def test_lines_of_several_workers_on_one_pipe_are_never_torn() -> None:
    with pipe() as (reading, writing):
        collected: list[bytes] = []
        reader = threading.Thread(target=lambda: collected.append(read_all(reading)))
        reader.start()
        writers = [LogWriter(json_lines, output=writing) for _ in range(2)]
        for _ in range(20):
            for writer in writers:
                writer([transition()] * 500)
        for writer in writers:
            writer.close(timeout_seconds=PATIENCE_SECONDS)
        os.close(writing)
        reader.join()
        assert [json.loads(line)["event"] for line in collected[0].splitlines()] == ["status_transition"] * 20_000


def events_of(written: bytes) -> list[str]:
    return [json.loads(line)["event"] for line in written.splitlines()]


def test_a_fact_that_cannot_be_worded_silences_no_other() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, output=writing)
        writer([transition(), transition(correlation_id="\ud800"), failure(None)])
        writer([transition()])
        writer.close()
        os.close(writing)
        lines = [json.loads(line) for line in read_all(reading).splitlines()]
    assert [line["event"] for line in lines] == [
        "status_transition", "notice", "delivery_failure", "status_transition",
    ]  # fmt: skip
    assert lines[1]["message"] == "cannot format this fact: StatusTransition"


# -- failing output --------------------------------------------------------------------------------------------


def test_a_pipe_that_others_made_non_blocking_loses_nothing() -> None:
    with pipe() as (reading, writing):
        os.set_blocking(writing, False)
        dropped = LogWriter.dropped_ever
        writer = LogWriter(json_lines, output=writing)
        for _ in range(20):
            writer([transition()] * 500)  # 2.9 MB: a pipe holds 64 KiB
        collected: list[bytes] = []
        reader = threading.Thread(target=lambda: collected.append(read_all(reading)))
        reader.start()
        writer.close(timeout_seconds=PATIENCE_SECONDS)
        os.close(writing)
        reader.join()
    assert events_of(collected[0]) == ["status_transition"] * 10_000
    assert LogWriter.dropped_ever == dropped


def test_what_a_full_disk_costs_is_counted_and_told_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, room=500)
    dropped = LogWriter.dropped_ever
    with open(tmp_path / "log", "wb") as file:
        writer = LogWriter(json_lines, output=file.fileno())
        writer.close()  # from here on it writes synchronously
        writer([transition()] * 5)
        writer([transition()] * 3)
        assert LogWriter.dropped_ever == dropped + 7
        disk.room = 1_000_000
        writer([transition()])
    whole, torn, later, told = (tmp_path / "log").read_bytes().splitlines()
    assert json.loads(whole) == json.loads(later)
    assert whole.startswith(torn[:100]) and len(torn) < len(whole)
    notice = json.loads(told)
    assert notice["message"] == "log lines were lost: OSError: [Errno 28] No space left on device"
    assert (notice["count"], notice["level"]) == (7, "warning")


class FullDisk:
    """Replaces `os.write` with a disk that has this many bytes left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr("doorstep.telemetry.logs.os.write", self)

    def __call__(self, handle: int, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self._write(handle, data[: self.room])
        self.room -= written
        return written


def test_a_reader_that_left_is_counted() -> None:
    with pipe() as (reading, writing):
        os.close(reading)
        dropped = LogWriter.dropped_ever
        writer = LogWriter(json_lines, output=writing)
        writer([transition()] * 3)
        writer.close()
    assert LogWriter.dropped_ever == dropped + 3


# -- secrets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [json_lines, text_format(colour=False)])
def test_a_secret_is_hidden_in_texts_and_spoils_nothing_else(words: Format) -> None:
    secrets = Secrets(["doorstep", "received", "a-secret-key"])
    notice = Notice(at=AT, level="info", message="a-secret-key of doorstep", fields={"more": ["a-secret-key"]})
    with pipe() as (reading, writing):
        writer = LogWriter(words, output=writing, secrets=secrets)
        writer([transition(), notice])
        writer.close()
        os.close(writing)
        first, second = read_all(reading).splitlines()
    assert first + b"\n" == words([transition()])
    assert b"a-secret-key" not in second and second.count(b"***") == 3


# -- forks -----------------------------------------------------------------------------------------------------


def test_a_forked_process_logs_at_once_and_repeats_nothing_of_its_parent() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, output=writing)
        for _ in range(20):
            writer([transition()] * 500)  # nobody reads: much of the log is still queued at the fork
        child = forked(lambda: writer([failure(None)]))
        collected: list[bytes] = []
        reader = threading.Thread(target=lambda: collected.append(read_all(reading)))
        reader.start()
        assert os.waitpid(child, 0)[1] == 0
        writer.close(timeout_seconds=PATIENCE_SECONDS)
        os.close(writing)
        reader.join()
    events = events_of(collected[0])
    assert (events.count("status_transition"), events.count("delivery_failure")) == (10_000, 1)


def test_a_lock_that_was_held_when_we_were_forked_does_not_stop_the_child() -> None:
    with pipe() as (reading, writing):
        writer = LogWriter(json_lines, output=writing)
        holding, over = threading.Event(), threading.Event()

        def hold() -> None:
            with writer._lock:
                holding.set()
                over.wait(PATIENCE_SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        holding.wait(PATIENCE_SECONDS)
        child = forked(lambda: writer([transition()]))
        assert json.loads(os.read(reading, 4_096))["event"] == "status_transition"
        assert os.waitpid(child, 0)[1] == 0
        over.set()
        holder.join()
        writer.close()


def test_what_a_forked_process_logs_in_the_usual_way_is_a_line_of_the_log() -> None:
    with pipe() as (reading, writing), routed(writing):
        process = multiprocessing.get_context("fork").Process(target=_log_and_die)
        process.start()
        process.join(PATIENCE_SECONDS)
        (line,) = os.read(reading, 65_536).splitlines()
    assert (process.exitcode, json.loads(line)["message"]) == (9, "said by a child")


def _log_and_die() -> None:
    logging.getLogger("shop").warning("said by a child")
    os._exit(9)


def forked(work: Callable[[], object]) -> int:
    """Fork a process that runs `work` and exits; an alarm ends it after ten seconds. Returns its process id."""
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(10)
        work()
        os._exit(0)
    return child


@contextmanager
def routed(handle: int) -> Iterator[LogWriter]:
    before = Routing.current()
    writer = open_log("info", "json", handle)
    try:
        yield writer
    finally:
        writer.close()
        before.restore()


def test_a_large_text_costs_no_more_if_its_reader_takes_it_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """This takes 10 ms. A version that copied the remaining text after each partial write took 3 s."""
    taken = bytearray()

    def write(_: int, data: bytes) -> int:
        taken.extend(data[:512])
        return min(len(data), 512)

    monkeypatch.setattr(os, "write", write)
    lines = b"".join(b"%08d\n" % number for number in range(500_000))
    began = time.process_time()
    LogOutput(1).write(lines)
    assert time.process_time() - began < 1.0
    assert taken == lines


# -- uncaught errors -------------------------------------------------------------------------------------------


def test_an_error_that_cannot_be_raised_is_a_line_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

    class Careless:
        def __del__(self) -> None:
            raise ValueError("c4n4" + "ry")

    with pipe() as (reading, writing):
        with routed(writing):
            Careless()
        line = os.read(reading, 65_536)
    assert json.loads(line)["message"].startswith("an error was ignored in ")
    assert b"ValueError" in line and b"c4n4ry" not in line


@pytest.mark.parametrize(("log_format", "lines"), [("json", 1), ("text", 0)])
def test_an_error_that_ends_delivering_in_a_guest_s_program_is_one_line_if_the_log_is_json(
    log_format: str, lines: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError), embedded_log("info", log_format):
        raise ValueError("c4n4" + "ry")
    said = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["message"] for one in said] == ["delivery was stopped by an error"] * lines
    assert all("ValueError" in one["traceback"] and "c4n4ry" not in str(one) for one in said)


def test_ctrl_c_is_no_crash(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), embedded_log("info", "json"):
        raise KeyboardInterrupt
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_a_guest_leaves_all_hooks_and_levels_as_they_were(error: type[BaseException] | None) -> None:
    ours = logging.getLogger("doorstep")
    ours.setLevel(logging.CRITICAL)
    before = _hooks_and_levels()
    with suppress(ValueError, KeyboardInterrupt), embedded_log("debug", "json"):
        if error is not None:
            raise error
    assert _hooks_and_levels() == before
    ours.setLevel(logging.NOTSET)


def _hooks_and_levels() -> list[object]:
    loggers = (logging.getLogger(), logging.getLogger("doorstep"))
    levels = [(logger.level, logger.handlers[:]) for logger in loggers]
    return [sys.excepthook, threading.excepthook, sys.unraisablehook, *levels]


def test_hooks_of_a_guest_s_program_hear_what_they_would_have_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda death: heard.append(str(death.exc_value)))
    monkeypatch.setattr(sys, "unraisablehook", lambda failed: heard.append(str(failed.exc_value)))

    class Careless:
        def __del__(self) -> None:
            raise ValueError("ignored")

    with pipe() as (_, writing), routed(writing), routed(writing):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        Careless()
    assert heard == ["division by zero", "ignored"]
