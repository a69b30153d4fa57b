"""Single rounds of the small services: what each does, and when it asks to run again."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from doorstep.clock import DAY, SECOND, AnchoredClock, Instant
from doorstep.engine.reclaim import next_expiry_seconds
from doorstep.model.attempt import Code
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.services.dispatcher import Dispatcher, Reclaimer
from doorstep.services.maintenance import Cleaner, ClockSync
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.testing import FakeClock
from tests.reference import ReferenceStore
from tests.support.builders import NOW, a_submission, an_endpoint
from tests.support.shortcuts import count_states, put, routing_versions
from tests.unit.engine.scene import Bench

# -- cleaner -----------------------------------------------------------------------------------------------


async def test_what_is_past_its_retention_is_removed_dead_letters_are_archived_and_the_counts_are_told() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint)
    await bench.deliver()
    (dead,) = await bench.accept(endpoint)
    await bench.deliver(404)
    cleaner = Cleaner(bench.store, bench.clock, bench.tuning, bench.telemetry, bench._wake)
    bench.clock.advance(7 * DAY / SECOND)
    assert await cleaner.run_once() == 60
    bench.clock.advance(0.001)
    assert await cleaner.run_once() == 0.05, "there may be more: soon again"
    assert await cleaner.run_once() == 60
    assert (await bench.delivery(dead)).state is DeliveryState.ARCHIVED
    assert sum((await count_states(bench.store)).values()) == 1
    (told,) = bench.heard(Notice)
    assert (told.fields["archived"], told.fields["deliveries"], told.fields["attempts"]) == (1, 1, 1)


async def test_what_expires_while_its_endpoint_is_paused_ends_as_the_path_would_have_ended_it() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (claimed,) = await bench.accept(endpoint, expires_at=NOW)
    await bench.deliver()
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.PAUSED), 1)
    await bench.directory.refresh()
    (held,) = await bench.accept(endpoint, expires_at=NOW + SECOND)
    cleaner = Cleaner(bench.store, bench.clock, bench.tuning, bench.telemetry, bench._wake)
    assert await cleaner.run_once() == 60
    bench.clock.advance(1)
    assert await cleaner.run_once() == 0.05
    one, other = await bench.delivery(claimed), await bench.delivery(held)
    assert (one.state, one.category, one.code, one.reason) == (other.state, other.category, other.code, other.reason)
    assert (other.state, other.code) == (DeliveryState.DEAD, Code.EXPIRED)


async def test_what_waited_behind_an_expired_delivery_of_its_ordering_group_is_claimed_at_once() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(state=EndpointState.PAUSED)
    await bench.accept(endpoint, ordering_key="a", expires_at=NOW + SECOND)
    cleaner = Cleaner(bench.store, bench.clock, bench.tuning, bench.telemetry, bench._wake)
    await cleaner.run_once()
    assert bench.woken == 0
    bench.clock.advance(1)
    await cleaner.run_once()
    assert bench.woken == 1


async def test_what_was_under_way_when_it_expired_is_found_by_the_next_sweep() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    (delivery_id,) = await bench.accept(endpoint, expires_at=NOW + SECOND)
    await bench.deliverer.round()
    cleaner = Cleaner(bench.store, bench.clock, bench.tuning, bench.telemetry, bench._wake)
    bench.clock.advance(2)
    await cleaner.run_once()
    await put(bench.store, msgspec.structs.replace(endpoint, state=EndpointState.PAUSED), 1)
    await bench.store.release(list(bench.deliverer.in_flight.values()), bench.clock.now())
    bench.clock.advance(3_600)
    assert await cleaner.run_once() == 0.05
    assert (await bench.delivery(delivery_id)).code == Code.EXPIRED


async def test_events_that_nobody_acknowledged_are_not_removed_in_silence() -> None:
    bench = Bench()
    await bench.prepare()
    await bench.store.accept([a_submission(bench.org.org_id)], await routing_versions(bench.store), NOW)
    cleaner = Cleaner(bench.store, bench.clock, bench.tuning, bench.telemetry, bench._wake)
    bench.clock.advance(bench.tuning.inbox_retention_days * DAY / SECOND)
    assert await cleaner.run_once() == 60
    bench.clock.advance(1)
    await cleaner.run_once()
    cleaned, warned = bench.heard(Notice)
    assert cleaned.fields["inbox_events"] == warned.fields["events"] == 1
    assert warned.level == "warning"


# -- dispatcher --------------------------------------------------------------------------------------------


def dispatcher_of(bench: Bench) -> Dispatcher:
    return Dispatcher(bench.deliverer, bench.directory, bench.clock)


async def test_with_nothing_known_to_be_due_the_store_is_asked_twice_a_second() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    assert await dispatcher_of(bench).run_once() == 0.5
    await bench.accept(endpoint, due_at=NOW + 3_600 * SECOND)
    assert await dispatcher_of(bench).run_once() == 0.5


async def test_the_next_round_is_when_the_next_delivery_is_due() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    await bench.accept(endpoint, due_at=NOW + SECOND // 8)
    assert await dispatcher_of(bench).run_once() == 0.125


async def test_a_change_to_an_endpoint_by_another_process_is_noticed_within_a_quarter_of_a_second() -> None:
    bench = Bench()
    await bench.prepare()
    dispatcher = dispatcher_of(bench)
    await dispatcher.run_once()
    assert bench.directory.is_loaded(bench.org.org_id)
    made = an_endpoint(bench.org.org_id)
    await put(bench.store, made, 0)
    bench.clock.advance(0.249)
    await dispatcher.run_once()
    assert bench.directory.endpoint(made.endpoint_id) is None
    bench.clock.advance(0.001)
    await dispatcher.run_once()
    assert bench.directory.endpoint(made.endpoint_id) == made


# -- reclaimer ---------------------------------------------------------------------------------------------


async def test_the_reclaimer_looks_at_once_again_after_a_find_and_otherwise_when_the_next_lease_ends() -> None:
    left, found, woken, asked = [0.0, 0.0, 0.25], [2, 0], [], []

    async def look(now: Instant) -> float:
        return 0.0

    async def reclaim(now: Instant) -> int:
        return found.pop(0)

    async def next_expiry(now: Instant, seconds_max: float) -> float:
        asked.append(seconds_max)
        return left.pop(0)

    clock = FakeClock()
    reclaimer = Reclaimer(look, reclaim, next_expiry, clock, lambda: woken.append(True), 1.5)
    assert await reclaimer.run_once() == 0.0
    assert woken == [True]
    assert await reclaimer.run_once() == 0.8, "another process has settled it"
    clock.advance(0.8)
    assert await reclaimer.run_once() == 0.25
    assert (woken, asked) == ([True], [1.5] * 3), "a lease that is made after a search may end soon"


async def test_the_reclaimer_looks_at_the_clock_each_second_and_searches_when_it_must_or_was_asked_to() -> None:
    looked, searched = [], []

    async def look(now: Instant) -> float:
        looked.append(now)
        return 0.0

    async def nothing(now: Instant) -> int:
        return 0

    async def next_expiry(now: Instant, seconds_max: float) -> float:
        searched.append(now)
        return seconds_max

    clock = FakeClock()
    reclaimer = Reclaimer(look, nothing, next_expiry, clock, lambda: None, 5.0)
    for _ in range(10):
        assert await reclaimer.run_once() == 1.0
        clock.advance(1)
    assert (len(looked), len(searched)) == (10, 2)
    reclaimer.search_soon()
    assert reclaimer.wake.is_set()
    await reclaimer.run_once()
    assert len(searched) == 3
    clock.advance(-3_600)
    await reclaimer.run_once()
    assert len(searched) == 4, "a clock that was set back does not end the searches"


async def test_the_next_lease_to_end_is_known_and_nothing_is_waited_for_longer_than_asked() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    assert await next_expiry_seconds(bench.store, bench.clock.now(), 99) == 99
    await bench.accept(endpoint)
    await bench.deliverer.round()
    bench.clock.advance(20)
    assert await next_expiry_seconds(bench.store, bench.clock.now(), 99) == bench.tuning.lease_seconds - 20
    assert await next_expiry_seconds(bench.store, bench.clock.now(), 5) == 5


async def test_on_a_store_that_notices_all_writes_an_idle_dispatcher_sleeps_long_but_not_after_a_change() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare()
    dispatcher = Dispatcher(bench.deliverer, bench.directory, bench.clock, 10)
    assert await dispatcher.run_once() == 10
    assert await dispatcher.run_once() == 0.5, "the directory was not refreshed, as it had just been"
    bench.clock.advance(1)
    await bench.accept(endpoint)
    assert await dispatcher.run_once() == 0.5, "there was something to claim, and there may be more"


# -- clock sync --------------------------------------------------------------------------------------------


class FarStore(ReferenceStore):
    """A store on another machine whose clock is ahead by `ahead`."""

    features = msgspec.structs.replace(ReferenceStore.features, many_machines=True)

    def __init__(self, clock: AnchoredClock, ahead: Instant) -> None:
        super().__init__(clock)
        self.ahead = ahead

    async def time(self) -> Instant:
        return await super().time() + self.ahead


async def test_a_process_follows_the_time_of_a_shared_store_and_a_large_step_is_told() -> None:
    clock = AnchoredClock()
    told: list[Any] = []
    before = clock.now()
    timekeeper = ClockSync(FarStore(clock, 3_600 * SECOND), clock, Telemetry(told.extend))
    assert await timekeeper.run_once() == 30
    assert 3_600 * SECOND <= clock.now() - before < 3_601 * SECOND
    assert [fact.message for fact in told] == ["the clock was moved to follow the store's time"]


async def test_small_corrections_are_made_silently() -> None:
    clock = AnchoredClock()
    told: list[Any] = []
    timekeeper = ClockSync(FarStore(clock, SECOND // 2), clock, Telemetry(told.extend))
    await timekeeper.run_once()
    assert told == []


async def test_an_embedded_store_has_no_time_of_its_own_to_follow() -> None:
    clock = AnchoredClock()
    assert await ClockSync(cast(Store, ReferenceStore(clock)), clock, Telemetry()).run_once() is None
