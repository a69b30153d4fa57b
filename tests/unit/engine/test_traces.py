"""Trace context links an attempt to the request that sent the event, both directly and through the outbox."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.engine.accept import Accepter, Options, draft_of
from doorstep.errors import InvalidInput
from doorstep.model.event import EventView
from doorstep.model.record import uuid7
from doorstep.operations.outbox import message_from
from doorstep.services.forwarder import draft_from
from tests.unit.engine.scene import Bench

ORG = UUID(int=1)
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_program_may_say_to_which_trace_an_event_belongs() -> None:
    assert draft_of("order", {}, ORG, Options(traceparent=GIVEN, tracestate="a=1")).trace == f"{GIVEN} a=1"
    assert draft_of("order", {}, ORG, Options()).trace is None


def test_a_program_that_names_a_trace_wrongly_is_told() -> None:
    with pytest.raises(InvalidInput, match="traceparent"):
        draft_of("order", {}, ORG, Options(traceparent="00-nonsense-01"))


def test_the_trace_of_an_event_comes_through_the_outbox() -> None:
    draft = draft_of("order", {}, ORG, Options(traceparent=GIVEN, tracestate="a=1"))
    assert draft_from(message_from(draft, uuid7(1), 1)).trace == draft.trace


@pytest.mark.parametrize("written", ["abc", f"{GIVEN} x\r\nx-evil: 1", GIVEN.upper(), "", 7])
async def test_a_trace_that_is_none_is_left_out_wherever_it_came_from(written: object) -> None:
    """Any program can write outbox rows. An unchecked trace would crash every worker that tries the event."""
    bench = Bench()
    (endpoint,) = await bench.prepare()
    accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=lambda: None)
    draft = draft_of("order", {}, bench.org.org_id, Options(endpoint_ids=[endpoint.endpoint_id]))
    (receipt,) = await accepter.accept([replace(draft, trace=written)])
    assert (await bench.store.get(EventView, bench.org.org_id, receipt.event_id)).event.trace is None
