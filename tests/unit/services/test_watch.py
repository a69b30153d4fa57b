"""The Watch: writes nothing while nothing is the matter, tells once, and takes over from whoever was killed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.model.act import AuditLine
from doorstep.model.alert import Alert, Rule
from doorstep.model.channel import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.model.endpoint import CircuitRules, Endpoint, EndpointState
from doorstep.path.alarms import Alarms
from doorstep.path.alert_book import CAUSES_MAX
from doorstep.services.watch import HOLD_SECONDS, LOOK_SECONDS, REVIEW_SECONDS, Watch
from doorstep.stores.store import Task
from tests.builders import an_org, new_id
from tests.unit.path.scene import Bench

WRITES = {"tell", "hold", "put_arrangement", "post", "accept", "settle"}


class Tower(Bench):
    """A bench with any number of watches."""

    def __init__(self) -> None:
        super().__init__()
        self.posted = 0
        self.watch = self.another_watch("one")

    def another_watch(self, holder: str) -> Watch:
        alarms = Alarms(self.store, self.directory, self.clock, "https://console.example", self._posted)
        return Watch(self.store, alarms, self.clock, holder, retention_days=1)

    def _posted(self) -> None:
        self.posted += 1

    async def kill(self, endpoint: Endpoint, count: int = 1, status: int = 400) -> None:
        await self.accept(endpoint, count)
        while (await self.store.lanes(self.clock.now())) and await self._waits():
            await self.deliver(status)

    async def _waits(self) -> bool:
        return any(lane.due_at <= self.clock.now() for lane in await self.store.lanes(self.clock.now()))

    async def run(self, watch: Watch | None = None) -> None:
        while not await (watch or self.watch).run_once():
            pass

    async def alerts(self, rule: Rule | None = None) -> list[Alert]:
        found = await self.store.live_alerts(self.org.org_id, 0)
        return [one for one in found if rule in (None, one.rule)]

    async def messages(self) -> Sequence[UUID]:
        return [one.event_id for one in await self.store.outbox(1_000)]

    async def channel(self) -> Channel:
        await self.store.put_org(an_org(org_id=OPERATIONS_ORG))
        channel = Channel(
            channel_id=new_id(),
            org_id=self.org.org_id,
            name="ops",
            means=ChannelKind.WEBHOOK,
            shown="https://ops.example",
        )
        line = AuditLine(at=0, org_id=self.org.org_id, actor="a", action="b", subjects=(), result="c")
        await self.store.put_arrangement(channel, 0, line, 10)
        return channel


async def test_while_nothing_is_the_matter_it_only_looks() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.accept(endpoint)
    await tower.deliver()
    tower.failing.calls.clear()
    for _ in range(60):
        assert await tower.watch.run_once() == LOOK_SECONDS
        tower.clock.advance(LOOK_SECONDS)
    assert not WRITES & set(tower.failing.calls)
    assert tower.failing.calls.count("any_incident") == 60
    assert tower.failing.calls.count("lanes") <= 60 / REVIEW_SECONDS + 1


async def test_a_death_is_told_in_the_round_that_finds_it_with_one_message_for_the_channel() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    channel = await tower.channel()
    await tower.kill(endpoint)
    await tower.run()
    (alert,) = await tower.alerts()
    assert (alert.rule, alert.told, alert.endpoint_name) == (Rule.DEAD_LETTER, True, endpoint.name)
    (posting,) = await tower.store.outbox(10)
    assert (posting.org_id, posting.options.endpoint_ids) == (OPERATIONS_ORG, (channel.channel_id,))
    assert posting.options.ordering_key == str(alert.alert_id)
    assert tower.posted == 1


async def test_two_that_tell_the_same_at_once_tell_it_once() -> None:
    """Though both believe that they have the right: it only saves work."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.channel()
    await tower.kill(endpoint, 3)
    read = await tower.store.incidents(10)
    await tower.run()
    stale = Alarms(tower.store, tower.directory, tower.clock, "", tower._posted)
    await stale._tell_org(tower.org.org_id, read)
    assert len(await tower.alerts()) == len(await tower.messages()) == 1


async def test_while_another_process_watches_it_leaves_it_to_that_and_takes_over_when_its_time_is_over() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    other = tower.another_watch("other")
    await tower.kill(endpoint)
    assert await tower.store.hold(
        Task.WATCH, "other", tower.clock.now(), tower.clock.now() + int(HOLD_SECONDS * SECOND)
    )
    assert await tower.watch.run_once() == LOOK_SECONDS
    assert await tower.alerts() == []
    tower.clock.advance(HOLD_SECONDS)
    await tower.run()
    assert len(await tower.alerts()) == 1
    assert await other.run_once() == LOOK_SECONDS


async def test_whoever_takes_over_looks_at_what_its_predecessor_suspected() -> None:
    """19 deaths are too few for a rate; he is killed; the 20th delivery succeeds, and leaves no incident."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 19)
    await tower.run()
    assert await tower.alerts(Rule.FAILURE_RATE) == []
    await tower.accept(endpoint)
    await tower.deliver(200)
    tower.clock.advance(HOLD_SECONDS + 1)
    heir = tower.another_watch("heir")
    await heir.run_once()
    (alert,) = await tower.alerts(Rule.FAILURE_RATE)
    assert alert.value == 95.0


async def test_a_store_that_is_away_loses_nothing() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    tower.failing.away.add("tell")
    for _ in range(2):
        try:
            await tower.watch.run_once()
        except StoreUnavailable:
            continue
    assert await tower.alerts() == []
    tower.failing.away.clear()
    await tower.run()
    assert len(await tower.alerts()) == 1


async def test_an_endpoint_that_dies_of_ever_new_causes_has_a_bounded_number_of_alerts() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 3)
    (incident, *_) = await tower.store.incidents(10)
    await tower.run()
    tables = tower.failing.kept._tables
    for cause in range(40):
        tables.add_incident(replace(incident, cause=cause))
    await tower.run()
    letters = await tower.alerts(Rule.DEAD_LETTER)
    assert len(letters) == CAUSES_MAX + 1
    assert sum(one.count for one in letters) == 43


async def test_a_deleted_endpoint_s_alerts_are_over() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare(circuit=CircuitRules(failures_max=1))
    await tower.accept(endpoint)
    await tower.deliver(503)
    await tower.run()
    (alert,) = await tower.alerts(Rule.CIRCUIT_OPENED)
    assert alert.is_open
    kept = await tower.store.endpoint(tower.org.org_id, endpoint.endpoint_id)
    await tower.store.put_endpoint(replace(kept, state=EndpointState.DELETED), kept.version)
    await tower.run()
    (alert,) = await tower.alerts(Rule.CIRCUIT_OPENED)
    assert not alert.is_open


async def test_what_is_long_over_is_removed() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    await tower.run()
    tower.clock.advance(3_601)
    await tower.watch.run_once()
    (alert,) = await tower.alerts()
    assert not alert.is_open
    tower.clock.advance(86_401)
    await tower.watch.run_once()
    assert await tower.alerts() == []


async def test_a_review_comes_in_time_though_incidents_do_not_end() -> None:
    """One dead endpoint must not keep the others' recoveries from being told."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    await tower.watch.run_once()
    tower.failing.calls.clear()
    for _ in range(10):
        await tower.kill(endpoint)
        tower.clock.advance(1.0)
        assert await tower.watch.run_once() == 0.0
    assert tower.failing.calls.count("live_alerts") > 10, "those of every organization, besides those of each telling"
