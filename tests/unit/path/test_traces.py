"""What ties an attempt to the request that sent its event, on its way out and through the outbox."""

from __future__ import annotations

from uuid import UUID

import pytest

from doorstep.errors import InvalidInput
from doorstep.model.ids import uuid7
from doorstep.path.drafting import Options, draft_of
from doorstep.path.forward import draft_from
from doorstep.path.post import posting_of

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
    assert draft_from(posting_of(draft, uuid7(1), 1)).trace == draft.trace
