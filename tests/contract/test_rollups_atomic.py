"""R10.2, R10.3: a change that cannot be counted is not made, so there is never an uncounted change.

A kill rarely hits the moment between two commits. So here the table of counters is unavailable during a
call: a method that counted in a separate transaction would leave an uncounted change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from doorstep.clock import SECOND
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.rollup import Figures
from doorstep.stores.store import Retention
from tests.contract.comparing import dump
from tests.contract.places import SqlPlace
from tests.contract.scene import WEEK, Scene
from tests.support.builders import NOW, a_submission
from tests.support.recounting import all_events
from tests.support.shortcuts import acknowledge, totals


class Stage:
    """One of everything that store methods can change, a week later."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.org_id, self.endpoint_id = scene.org_id, scene.endpoint.endpoint_id

    async def set(self) -> Stage:
        scene = self.scene
        await scene.in_state(DeliveryState.DELIVERED)
        self.letter = await scene.in_state(DeliveryState.DEAD)
        await scene.accept()
        self.held = await scene.claim_one()
        (self.waiting,) = await scene.accept(expires_at=NOW + SECOND)
        self.inbox = a_submission(self.org_id)
        await scene.submit(self.inbox)
        scene.wait(WEEK)
        return self

    @property
    def waiting_id(self) -> UUID:
        return self.waiting.deliveries[0].delivery_id

    async def kept(self) -> tuple[dict[str, Any], Figures]:
        """Everything that is stored, and all figures."""
        store = self.scene.store
        events = [(self.org_id, event_id) for event_id in await all_events(store, self.org_id)]
        return await dump(store, events), await totals(store)


VERBS: dict[str, Callable[[Stage], Awaitable[object]]] = {
    "accept": lambda stage: stage.scene.accept(),
    "claim": lambda stage: stage.scene.claim(),
    "deliver": lambda stage: stage.scene.deliver(stage.held),
    "fail": lambda stage: stage.scene.fail(stage.held),
    "kill": lambda stage: stage.scene.kill(stage.held),
    "late": lambda stage: stage.scene.deliver(stage.held._replace(token=0)),
    "retry": lambda stage: stage.scene.act(ActionKind.RETRY, stage.letter),
    "skip": lambda stage: stage.scene.act(ActionKind.SKIP, stage.waiting_id),
    "delete": lambda stage: stage.scene.act(ActionKind.DELETE, stage.letter),
    "bury": lambda stage: stage.scene.store.dead_letter_waiting(stage.endpoint_id, "GONE", "gone", stage.scene.now, 9),
    "expire": lambda stage: stage.scene.store.expire("EXPIRED", "late", 0, stage.scene.now, 9),
    "archive": lambda stage: stage.scene.store.archive(stage.scene.now, stage.scene.now, 9),
    "acknowledge": lambda stage: acknowledge(
        stage.scene.store, stage.org_id, stage.inbox.event.event_id, stage.scene.now
    ),
    "delete event": lambda stage: stage.scene.store.delete_event(
        stage.org_id, stage.waiting.event.event_id, "ops", stage.scene.now
    ),
    "clean": lambda stage: stage.scene.store.clean(Retention(settled_before=stage.scene.now), stage.scene.now, 9),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_that_cannot_count_does_nothing(sql_place: SqlPlace, sql_scene: Scene, verb: str) -> None:
    stage = await Stage(sql_scene).set()
    before = await stage.kept()
    await sql_place.execute("ALTER TABLE doorstep_counters RENAME TO doorstep_away")
    try:
        with pytest.raises(Exception, match="doorstep_counters"):
            await VERBS[verb](stage)
    finally:
        await sql_place.execute("ALTER TABLE doorstep_away RENAME TO doorstep_counters")
    assert await stage.kept() == before
    await VERBS[verb](stage)
    assert await stage.kept() != before, "or it would have had nothing to do"
