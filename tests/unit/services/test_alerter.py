"""The Alerter: it writes nothing while nothing is wrong, notifies once, and takes over from a killed process."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.model.alert import OPERATIONS_ORG, AlertRule, Incident, Incidents, OrgsToReview, Rule
from doorstep.model.endpoint import CircuitRules, Endpoint, EndpointState
from doorstep.operations.alert_batch import CAUSES_MAX
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.services.alerter import LEASE_SECONDS, POLL_SECONDS, REVIEW_SECONDS, Alerter
from doorstep.stores.store import Store, Task
from tests.support.builders import an_endpoint, an_org
from tests.support.shortcuts import put
from tests.unit.services.tower import Tower

WRITES = {"write_alerts", "acquire_lock", "write AlertRule", "accept", "settle"}


class Stale:
    """A store that still returns the incidents that were read a while ago."""

    def __init__(self, store: Store, incidents: list[Incident]) -> None:
        self._store = store
        self._incidents = incidents

    async def find(self, org_id: UUID | None, query: Any) -> Any:
        return self._incidents if isinstance(query, Incidents) else await self._store.find(org_id, query)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)


async def test_while_nothing_is_the_matter_it_only_looks() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.accept(endpoint)
    await tower.deliver()
    tower.failing.calls.clear()
    for _ in range(60):
        assert await tower.watch.run_once() == POLL_SECONDS
        tower.clock.advance(POLL_SECONDS)
    assert not WRITES & set(tower.failing.calls)
    assert tower.failing.calls.count("any_waiting") == 60
    assert tower.failing.calls.count("due_lanes") <= 60 / REVIEW_SECONDS + 1


def announcing(tower: Tower) -> Alerter:
    """An alerter on a store that announces incidents."""
    tower.failing.features = replace(tower.failing.features, announces_work=True)
    return tower.another_watch("two")


async def test_on_a_store_that_announces_incidents_it_sleeps_while_nothing_is_waiting() -> None:
    tower = Tower()
    await tower.prepare()
    watch = announcing(tower)
    assert await watch.run_once() == 30
    tower.clock.advance(30)
    assert await watch.run_once() == 30


async def test_a_write_that_wakes_a_sleeping_alerter_is_followed_by_a_review_as_soon_as_usual() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    watch = announcing(tower)
    await watch.run_once()
    tower.clock.advance(1)
    await tower.accept(endpoint)
    assert await watch.run_once() == REVIEW_SECONDS - 1
    tower.clock.advance(REVIEW_SECONDS - 1)
    assert await watch.run_once() == REVIEW_SECONDS, "a delivery waits, and may become late"


async def test_an_announcing_alerter_does_not_sleep_past_the_review_of_an_alert() -> None:
    tower = Tower()
    await tower.prepare()
    watch, review_at = announcing(tower), tower.clock.now() + 40 * SECOND

    async def to_review(_: None, query: OrgsToReview) -> list[UUID]:
        return [tower.org.org_id] if query.now >= review_at else []

    tower.failing.answers["find OrgsToReview"] = to_review
    assert await watch.run_once() == 30
    tower.clock.advance(30)
    assert await watch.run_once() == REVIEW_SECONDS


async def test_while_another_process_has_the_lock_waiting_incidents_are_looked_for_each_second() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.watch.lock.acquire()
    await tower.kill(endpoint)
    assert await announcing(tower).run_once() == POLL_SECONDS


async def test_a_death_is_told_in_the_round_that_finds_it_with_one_message_for_the_channel() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    channel = await tower.channel()
    await tower.kill(endpoint)
    await tower.run()
    (alert,) = await tower.alerts()
    assert (alert.rule, alert.told, alert.endpoint_name) == (Rule.DEAD_LETTER, True, endpoint.name)
    (message,) = await tower.store.outbox(10)
    assert (message.org_id, message.options.endpoint_ids) == (OPERATIONS_ORG, (channel.channel_id,))
    assert message.options.ordering_key == str(alert.alert_id)
    assert tower.posted == 1


async def test_two_that_tell_the_same_at_once_tell_it_once() -> None:
    """This holds even if both believe that they hold the lock: the lock only saves work."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.channel()
    await tower.kill(endpoint, 3)
    read = await tower.store.find(tower.org.org_id, Incidents(limit=10))
    await tower.run()
    stale = AlertEvaluator(cast(Store, Stale(tower.store, read)), tower.directory, tower.clock, "", tower._posted)
    await stale._process_org(tower.org.org_id)
    assert len(await tower.alerts()) == len(await tower.messages()) == 1


async def test_while_another_process_watches_it_leaves_it_to_that_and_takes_over_when_its_time_is_over() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    other = tower.another_watch("other")
    await tower.kill(endpoint)
    assert await tower.store.acquire_lock(
        Task.ALERTS, "other", tower.clock.now(), tower.clock.now() + int(LEASE_SECONDS * SECOND)
    )
    assert await tower.watch.run_once() == POLL_SECONDS
    assert await tower.alerts() == []
    tower.clock.advance(LEASE_SECONDS)
    await tower.run()
    assert len(await tower.alerts()) == 1
    assert await other.run_once() == POLL_SECONDS


async def test_whoever_takes_over_looks_at_what_its_predecessor_suspected() -> None:
    """19 deaths are too few for a rate. The alerter is killed; the 20th delivery succeeds and leaves no incident."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 19)
    await tower.run()
    assert await tower.alerts(Rule.FAILURE_RATE) == []
    await tower.accept(endpoint)
    await tower.deliver(200)
    tower.clock.advance(LEASE_SECONDS + 1)
    heir = tower.another_watch("heir")
    await heir.run_once()
    (alert,) = await tower.alerts(Rule.FAILURE_RATE)
    assert alert.value == 95.0


async def test_whoever_takes_over_asks_once_where_deliveries_died_before_he_tells_anything() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    for _ in range(20):
        org = an_org()
        await put(tower.store, org)
        await put(tower.store, an_endpoint(org.org_id), 0)
    await tower.kill(endpoint)
    tower.failing.calls.clear()
    await tower.watch.run_once()
    calls = tower.failing.calls
    assert calls.index("find FailingEndpoints") < calls.index("write_alerts")
    assert (calls.count("find FailingEndpoints"), calls.count("find AlertConfigs")) == (1, 2), "told, and reviewed"


async def test_a_store_that_is_away_loses_nothing() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    tower.failing.away.add("write_alerts")
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
    (incident, *_) = await tower.store.find(tower.org.org_id, Incidents(limit=10))
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
    kept = await tower.store.get(Endpoint, tower.org.org_id, endpoint.endpoint_id)
    await put(tower.store, replace(kept, state=EndpointState.DELETED), kept.version)
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


async def test_what_is_over_is_not_removed_before_its_cooldown_is_over() -> None:
    """Alerts are kept for a day here, but without its cooldown this alert would be sent again."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.channel()
    rule = AlertRule(org_id=tower.org.org_id, rule=Rule.ENDPOINT_DISABLED, cooldown_seconds=3 * 86_400)
    await tower.arrange(rule)
    for state in (EndpointState.DISABLED, EndpointState.ACTIVE):
        await tower.change(endpoint, state=state)
        await tower.run()
    await tower.review(2 * 86_400)
    await tower.change(endpoint, state=EndpointState.DISABLED)
    await tower.run()
    (alert,) = await tower.alerts()
    assert (alert.count, alert.told) == (2, False)
    assert [news for news, _ in await tower.told()] == ["alert.fired", "alert.recovered"]
    await tower.change(endpoint, state=EndpointState.ACTIVE)
    await tower.run()
    await tower.review(86_400)
    assert len(await tower.alerts()) == 1, "that is a day, and three since it was told"
    await tower.review(3_601)
    assert await tower.alerts() == []


async def test_a_review_comes_in_time_though_incidents_do_not_end() -> None:
    """One dead endpoint must not delay the recovery messages of the others."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    await tower.watch.run_once()
    tower.failing.calls.clear()
    for _ in range(10):
        await tower.kill(endpoint)
        tower.clock.advance(1.0)
        assert await tower.watch.run_once() == 0.0
    assert tower.failing.calls.count("find OrgsToReview") == 10 / REVIEW_SECONDS
