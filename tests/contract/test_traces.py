"""The trace context of an event is passed to every claim, including the claim of a lost worker."""

from __future__ import annotations

import pytest

from doorstep.model.event import EventView
from tests.contract.scene import LEASE, SOON, Scene

TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 shop="a\\b", other=1'


async def test_every_claim_has_the_trace_of_its_event_and_no_other(scene: Scene) -> None:
    await scene.accept(2)
    await scene.accept(2, trace=TRACE)
    await scene.accept(trace="00-1-2-00")
    claims = await scene.claim()
    assert [claim.trace for claim in claims] == [None, None, TRACE, TRACE, "00-1-2-00"]


@pytest.mark.parametrize("trace", [None, TRACE])
async def test_a_retry_and_the_reclaiming_of_a_lost_worker_have_the_trace_too(scene: Scene, trace: str | None) -> None:
    await scene.accept(trace=trace)
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    assert (await scene.claim_one()).trace == trace
    scene.wait(LEASE)
    (expired,) = await scene.store.expired(scene.now, 10)
    assert expired.trace == trace


async def test_the_event_that_is_read_back_has_its_trace(scene: Scene) -> None:
    (submission,) = await scene.accept(trace=TRACE)
    view = await scene.store.get(EventView, scene.org_id, submission.event.event_id)
    assert view.event == submission.event
