"""What the logger `doorstep` says about each kind of failure."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.telemetry.standard_log import StandardLog
from tests.unit.telemetry.test_logs import EVERY_KIND, failure

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in ship\nKeyError: 1\n'


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(failures=StandardLog(lambda endpoint_id: "ship"))


def test_failures_of_every_kind_are_records_and_everything_else_is_none(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    telemetry.emit_all([one for one in EVERY_KIND if one.level is UNSET or one.level == "info"])
    assert not caplog.records
    telemetry.emit_all(EVERY_KIND)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR", "ERROR"]
    assert all(record.name == "doorstep" for record in caplog.records)
    assert "ship: attempt 2 failed, it is now a dead letter (event " in caplog.records[0].message
    assert caplog.records[2].message == "ship was disabled: gone"
    assert caplog.records[3].message == "the cleaner failed and will try again in 1 s: x"


def test_a_failure_after_which_the_delivery_is_pending_waits_for_an_operator(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    failed = failure(None)
    pending = replace(EVERY_KIND[2], delivery_id=failed.delivery_id, old_state="in_progress", new_state="pending")
    telemetry.emit_all([failed, pending])
    assert "ship: attempt 2 failed, it waits in the retry queue for an operator (event " in caplog.records[0].message


def test_the_traceback_follows_the_message_with_any_formatter(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry.emit(replace(failure(None), traceback=TRACEBACK))
    (record,) = caplog.records
    assert logging.Formatter("%(message)s").format(record) == f"{record.message}\n{TRACEBACK}".rstrip()


def test_an_error_without_a_message_is_told_by_its_code_once(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    told = failure(None)
    telemetry.emit(replace(told, error={**told.error, "code": "BUSY"}, error_reason="BUSY"))
    telemetry.emit(replace(told, error={**told.error, "code": "BUSY"}, error_reason="The line is busy."))
    assert [one.message.partition("); ")[2] for one in caplog.records] == ["BUSY", "BUSY: The line is busy."]


def test_a_delivery_that_dies_without_an_attempt_is_told_of(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    moved: list[Fact] = [replace(EVERY_KIND[2], old_state=old, new_state="dead") for old in ("pending", "in_progress")]
    telemetry.emit_all(moved)
    (record,) = caplog.records
    assert record.message.startswith("ship: delivery ") and record.message.endswith("without another attempt")


def test_an_endpoint_that_is_not_known_any_more_has_its_id(caplog: pytest.LogCaptureFixture) -> None:
    from doorstep import Doorstep

    Doorstep("memory://").telemetry.emit(failure(None))
    assert f"endpoint {UUID(int=0)}"[:9] in caplog.text
