"""Dead alert messages, which operators cannot act on, are removed after a week; other dead letters stay."""

from __future__ import annotations

from doorstep.clock import DAY
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.listing import DeadLetterFilter
from doorstep.operations.actions import DeliveryActions
from doorstep.services.maintenance import MessageCleaner
from doorstep.stores.store import Retention
from tests.support.builders import an_endpoint, an_org
from tests.support.shortcuts import count_states, put
from tests.unit.engine.scene import Bench


async def test_messages_that_died_a_week_ago_are_deleted_and_later_cleaned_away() -> None:
    bench = Bench()
    (own,) = await bench.prepare(policy=None)
    await put(bench.store, an_org(org_id=OPERATIONS_ORG))
    channel = an_endpoint(OPERATIONS_ORG)
    await put(bench.store, channel, 0)
    await bench.directory.refresh()
    kept = await bench.accept(own)
    await bench.accept(channel, 3)
    await bench.deliver(404)
    actions = DeliveryActions(bench.store, bench.clock, bench.tuning, bench.telemetry)
    cleaner = MessageCleaner(bench.store, actions, bench.clock, bench.tuning)

    async def dead() -> int:
        return sum((await count_states(bench.store)).values())

    bench.clock.advance(6.9 * 86_400)
    assert await cleaner.run_once() == 3_600
    assert (await dead(), len((await bench.store.page(OPERATIONS_ORG, DeadLetterFilter())).items)) == (4, 3)
    bench.clock.advance(0.2 * 86_400)
    pause = await cleaner.run_once()
    assert pause is not None and pause < 1
    assert await cleaner.run_once() == 3_600
    bench.clock.advance(7.1 * 86_400)
    now = bench.clock.now()
    await bench.store.clean(Retention(settled_before=now - 7 * DAY), now, 100)
    assert await dead() == 1
    assert (await bench.delivery(kept[0])).code == "NOT_FOUND"
