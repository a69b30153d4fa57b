"""R1.1, R8.3: events without an endpoint wait until their consumer acknowledges them."""

from __future__ import annotations

import pytest

from doorstep.errors import Conflict, NotFound
from doorstep.model.claim import StatusChange
from doorstep.model.event import EventStatus
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_org, new_id
from tests.support.shortcuts import put


async def test_an_acknowledged_event_is_delivered(scene: Scene) -> None:
    submission = a_submission(scene.org_id)
    await scene.submit(submission)
    event_id = submission.event.event_id

    change = await scene.store.acknowledge(scene.org_id, event_id, scene.now)

    received, delivered = EventStatus.RECEIVED, EventStatus.DELIVERED
    assert change == StatusChange(event_id, scene.org_id, "request-1", received, delivered)
    assert await scene.status(event_id) is delivered


async def test_acknowledging_again_changes_nothing_and_says_so(scene: Scene) -> None:
    submission = a_submission(scene.org_id)
    await scene.submit(submission)
    await scene.store.acknowledge(scene.org_id, submission.event.event_id, scene.now)
    again = await scene.store.acknowledge(scene.org_id, submission.event.event_id, scene.now + 1)
    assert (again.old_status, again.new_status) == (EventStatus.DELIVERED, EventStatus.DELIVERED)


async def test_an_event_that_endpoints_take_cannot_be_acknowledged(scene: Scene) -> None:
    (submission,) = await scene.accept()
    with pytest.raises(Conflict):
        await scene.store.acknowledge(scene.org_id, submission.event.event_id, scene.now)
    assert await scene.status(submission.event.event_id) is EventStatus.RECEIVED


async def test_unknown_events_and_those_of_another_organization_are_not_found(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    submission = a_submission(scene.org_id)
    await scene.submit(submission)
    for org_id, event_id in ((scene.org_id, new_id()), (other.org_id, submission.event.event_id)):
        with pytest.raises(NotFound):
            await scene.store.acknowledge(org_id, event_id, scene.now)
