"""Trace contexts: what is accepted from senders, and what is sent to receivers."""

from __future__ import annotations

from uuid import UUID

import pytest

from doorstep.model.record import uuid7
from doorstep.telemetry.tracing import (
    acceptance_span,
    attempt_span,
    beginning,
    begun,
    context_of,
    incoming,
    late_span,
    outgoing,
    passed_on,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{SPAN}-01"
EVENT = UUID("0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d10")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (GIVEN, GIVEN),
        (f" {GIVEN.upper()} ", GIVEN),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-03", GIVEN),  # unknown flags are not passed on
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", GIVEN),
    ],
)
def test_a_well_formed_traceparent_is_kept(given: str, kept: str) -> None:
    assert incoming(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"{GIVEN}\n{GIVEN}",
    ],
)
def test_a_malformed_traceparent_is_ignored_with_its_tracestate(given: str | None) -> None:
    assert incoming(given, "vendor=1") is None


def test_tracestate_is_kept_as_it_is_but_not_if_it_could_break_a_header() -> None:
    assert incoming(GIVEN, " a=1, b=2 ") == f"{GIVEN} a=1, b=2"
    for bad in ("", "a=1\nx: 1", "a=\0", "ä=1", "x" * 513):
        assert incoming(GIVEN, bad) == GIVEN


def test_a_context_says_where_the_spans_of_an_event_belong() -> None:
    ids = int(TRACE, 16), int(SPAN, 16)
    assert context_of(f"{GIVEN} a=1, b=2") == (*ids, True, "a=1, b=2")
    assert context_of(f"00-{TRACE}-{SPAN}-00") == (*ids, False, "")


def test_an_event_without_a_trace_begins_one_that_has_its_own_id() -> None:
    assert beginning(EVENT) == (EVENT.int, 0, None, "")
    assert context_of(begun(EVENT)) == (EVENT.int, 0, True, "")


def test_every_attempt_has_a_span_id_of_its_own_that_every_process_knows() -> None:
    deliveries = [uuid7(1_700_000_000_000_000) for _ in range(200)]
    ids = {attempt_span(delivery, attempt) for delivery in deliveries for attempt in range(1, 21)}
    ids |= {acceptance_span(delivery) for delivery in deliveries}
    ids |= {late_span(delivery, token) for delivery in deliveries for token in range(1, 21)}
    assert len(ids) == 200 * 41
    assert all(0 < one < 1 << 64 for one in ids)
    assert attempt_span(EVENT, 2) == attempt_span(UUID(str(EVENT)), 2)


def test_what_a_receiver_is_told_is_a_traceparent_below_the_attempt() -> None:
    told = outgoing(context_of(GIVEN), attempt_span(EVENT, 1))
    assert told == f"00-{TRACE}-{attempt_span(EVENT, 1):016x}-01"
    assert incoming(told) == told


@pytest.mark.parametrize("given", [GIVEN, f"00-{TRACE}-{SPAN}-00"])
def test_where_no_span_is_recorded_the_senders_own_is_passed_on(given: str) -> None:
    assert passed_on(context_of(given), EVENT) == given
    assert passed_on(context_of(begun(EVENT)), EVENT) == f"00-{EVENT.hex}-{acceptance_span(EVENT):016x}-01"
