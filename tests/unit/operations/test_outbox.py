"""Events that are still in the outbox or were rejected there, and the actions allowed on them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from doorstep import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ActionKind
from doorstep.model.event import EventStatus
from doorstep.model.listing import AuditFilter
from doorstep.model.outbox import Posted
from doorstep.testing import Sandbox, sandbox
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put

STRANGER = UUID(int=7)


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with sandbox(Doorstep("memory://")) as box:
        yield box


def send(box: Sandbox, org_id: UUID = DEFAULT_ORG, endpoint_ids: list[UUID] | None = None) -> Posted:
    with sqlite3.connect(":memory:") as connection:
        return box.doorstep.send_sync("order.paid", {}, connection=connection, org_id=org_id, endpoint_ids=endpoint_ids)


async def refusals(box: Sandbox, event_id: UUID) -> list[str]:
    """The error messages of the event actions that are refused."""
    steward, heard = box.doorstep.components.events, []
    for act in (
        box.doorstep.components.inbox.acknowledge(DEFAULT_ORG, event_id, "ops"),
        steward.delete(DEFAULT_ORG, event_id, "ops"),
        steward.act(ActionKind.CANCEL, DEFAULT_ORG, event_id, "ops"),
    ):
        with pytest.raises(Conflict) as refused:
            await act
        heard.append(str(refused.value))
    return heard


async def test_what_is_done_to_an_event_in_the_outbox_is_a_conflict_that_asks_for_patience(box: Sandbox) -> None:
    posted = send(box)
    for sentence in await refusals(box, posted.event_id):
        assert sentence == f"event {posted.event_id} is still in the outbox; try again in a moment"
    await box.drain()
    await box.doorstep.components.inbox.acknowledge(DEFAULT_ORG, posted.event_id, "ops")


async def test_what_is_done_to_an_event_that_was_rejected_is_a_conflict_that_says_why(box: Sandbox) -> None:
    posted = send(box, endpoint_ids=[STRANGER])
    await box.drain()
    for sentence in await refusals(box, posted.event_id):
        assert f"was rejected in the outbox (no endpoint {STRANGER})" in sentence
    view = await box.doorstep.components.reader.event(DEFAULT_ORG, posted.event_id)
    assert (view.status, view.refusal) == (EventStatus.FAILED, f"no endpoint {STRANGER}")


async def test_an_unknown_event_is_still_not_found(box: Sandbox) -> None:
    with pytest.raises(NotFound):
        await box.doorstep.components.events.delete(DEFAULT_ORG, new_id(), "ops")


async def test_once_its_cause_is_repaired_what_was_rejected_is_requeued_and_accepted(box: Sandbox) -> None:
    org = an_org()
    posted = send(box, org_id=org.org_id)
    await box.drain()
    (refused,) = await box.doorstep.outbox.refused()
    assert refused.event_id == posted.event_id
    await put(box.doorstep.components.store, org)
    assert await box.doorstep.outbox.retry([posted.event_id, new_id()], "ops", "it is there now") == [posted.event_id]
    await box.doorstep.components.directory.refresh()
    await box.drain()
    assert (await box.doorstep.components.reader.event(org.org_id, posted.event_id)).in_outbox is False
    (line,) = (await box.doorstep.components.store.page(org.org_id, AuditFilter(action="outbox.retry"))).items
    assert (line.actor, line.subjects, line.reason) == ("ops", (str(posted.event_id),), "it is there now")


async def test_what_is_removed_is_gone_and_audited_even_for_an_organization_that_never_was(box: Sandbox) -> None:
    posted = send(box, org_id=STRANGER)
    waiting = send(box)
    with pytest.raises(InvalidInput, match="must name 1 to 1000 events, got 0"):
        await box.doorstep.outbox.discard([], "ops")
    assert await box.doorstep.outbox.discard([posted.event_id], "ops") == [], "it may still be accepted"
    await box.drain()
    assert await box.doorstep.outbox.discard([posted.event_id, waiting.event_id], "ops") == [posted.event_id]
    assert await box.doorstep.outbox.refused() == []
    (line,) = (await box.doorstep.components.store.page(DEFAULT_ORG, AuditFilter(action="outbox.discard"))).items
    assert line.subjects == (str(posted.event_id),)
