"""The alert evaluator turns incidents and measurements into alerts, separately for each organization."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND, seconds
from doorstep.errors import StoreUnavailable
from doorstep.model.alert import (
    AlertChange,
    AlertRule,
    AlertWrite,
    Ending,
    Incidents,
    LiveAlerts,
    Rule,
    Silence,
)
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState, Endpoint, EndpointState
from doorstep.model.org import Org
from doorstep.operations.alert_evaluator import INCIDENTS_MAX
from doorstep.services.alerter import REVIEW_SECONDS
from doorstep.stores.store import Delete, Topic
from tests.support.builders import an_endpoint, an_org, new_id
from tests.support.shortcuts import put
from tests.unit.services.tower import Tower

FRAGILE = CircuitRules(failures_max=1)


async def another_org(tower: Tower) -> tuple[Org, Endpoint]:
    org = an_org()
    await put(tower.store, org)
    endpoint = an_endpoint(org.org_id, circuit=FRAGILE)
    await put(tower.store, endpoint, 0)
    await tower.directory.refresh()
    return org, endpoint


async def told_of_circuits(tower: Tower) -> list[str]:
    return [news for news, rule in await tower.told() if rule == Rule.CIRCUIT_OPENED]


async def circuit_alerts(tower: Tower, org_id: UUID) -> list[bool]:
    found = await tower.store.find(org_id, LiveAlerts(ended_after=0))
    return [one.is_open for one in found if one.rule is Rule.CIRCUIT_OPENED]


# -- isolation between organizations -----------------------------------------------------------------------


async def test_a_flood_of_one_organization_delays_nothing_that_another_is_told() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    (incident,) = await tower.store.find(tower.org.org_id, Incidents(limit=10))
    for _ in range(3 * INCIDENTS_MAX):
        tower.failing.kept._tables.add_incident(incident)
    other, quiet = await another_org(tower)
    await tower.kill(quiet)
    await tower.watch.run_once()
    assert [one.count for one in await tower.alerts(Rule.DEAD_LETTER)] == [INCIDENTS_MAX]
    assert len(await tower.store.find(other.org_id, LiveAlerts(ended_after=0))) == 1


@pytest.mark.parametrize("first", [True, False])
async def test_an_organization_that_makes_trouble_delays_nothing_that_another_is_told(first: bool) -> None:
    """In notifications and in reviews, whatever the order of the organizations. The error itself is still raised."""
    tower = Tower()
    (endpoint,) = await tower.prepare(circuit=FRAGILE)
    org, other = await another_org(tower)
    await tower.accept(endpoint)
    await tower.accept(other)
    await tower.deliver(503)
    troubled, healthy = (tower.org.org_id, org.org_id) if first else (org.org_id, tower.org.org_id)
    tower.failing.refuses = lambda verb, args: verb == "find AlertConfigs" and args[0] == troubled
    with pytest.raises(StoreUnavailable):
        await tower.watch.run_once()
    assert await circuit_alerts(tower, healthy) == [True]
    tower.clock.advance(400)  # their retries, planned a minute after failing, are overdue
    await tower.store.put_circuit(Circuit(endpoint_id=endpoint.endpoint_id), 1, "it works")
    await tower.store.put_circuit(Circuit(endpoint_id=other.endpoint_id), 1, "it works")
    with pytest.raises(StoreUnavailable):
        await tower.watch.run_once()
    rules = {one.rule for one in await tower.store.find(healthy, LiveAlerts(ended_after=0)) if one.is_open}
    assert rules == {Rule.OLDEST_DUE}


async def test_what_cannot_be_told_keeps_nothing_from_being_reviewed() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    org, other = await another_org(tower)
    await tower.kill(other)
    await tower.run()
    await tower.kill(endpoint)
    tower.failing.refuses = lambda verb, args: verb == "find Incidents"
    tower.clock.advance(3_601)
    with pytest.raises(StoreUnavailable):
        await tower.watch.run_once()
    assert await tower.store.find(org.org_id, LiveAlerts(ended_after=0)) == [], "its time was over"


# -- only when it is due -----------------------------------------------------------------------------------


async def test_a_dead_letter_is_read_again_only_when_its_cooldown_ends() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    await tower.run()
    tower.clock.advance(1_000)
    await tower.run()  # the death is older than the failure rate's window
    tower.failing.calls.clear()
    for _ in range(100):
        await tower.review()
    assert not {"find LiveAlerts", "find AlertConfigs", "acquire_lock"} & set(tower.failing.calls)
    tower.clock.advance(3_600)
    await tower.review()
    (alert,) = await tower.alerts()
    assert alert.ended_because is Ending.ELAPSED


async def test_what_goes_on_shows_what_it_measures_now() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.arrange(AlertRule(org_id=tower.org.org_id, rule=Rule.DEAD_LETTERS, threshold=1))
    await tower.kill(endpoint, 2)
    await tower.run()
    await tower.kill(endpoint, 5)
    await tower.review(60)
    (alert,) = await tower.alerts(Rule.DEAD_LETTERS)
    assert (alert.value, alert.seen_at) == (7, tower.clock.now())


# -- failure rates -----------------------------------------------------------------------------------------


async def test_whoever_takes_over_goes_on_suspecting_while_the_window_lasts() -> None:
    """The successor keeps watching after its first look: the delivery that completes the rate comes later."""
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 19)
    await tower.run()
    tower.clock.advance(60)
    heir = tower.another_watch("heir")
    await tower.run(heir)
    tower.clock.advance(60)
    await tower.run(heir)
    await tower.accept(endpoint)
    await tower.deliver(200)
    tower.clock.advance(60)
    await tower.run(heir)
    assert [one.value for one in await tower.alerts(Rule.FAILURE_RATE)] == [95.0]


async def test_the_failure_rate_of_the_whole_organization_is_told_where_no_endpoint_has_enough() -> None:
    tower = Tower()
    endpoints = await tower.prepare(10)
    for endpoint in endpoints[1:]:
        await tower.accept(endpoint, 10)
    await tower.deliver(200)
    await tower.deliver(200)
    while await tower._waits():
        await tower.deliver(200)
    await tower.kill(endpoints[0], 4)
    await tower.run()
    assert await tower.alerts(Rule.FAILURE_RATE) == [], "4 of 94"
    await tower.kill(endpoints[0], 1)
    await tower.run()
    (alert,) = await tower.alerts(Rule.FAILURE_RATE)
    assert (alert.endpoint_id, alert.value) == (None, 100 * 5 / 95)
    await tower.review(1_000)
    assert [one.ended_because for one in await tower.alerts(Rule.FAILURE_RATE)] == [Ending.RECOVERED]


async def test_exactly_five_percent_of_the_whole_organization_do_not_fire() -> None:
    tower = Tower()
    first, second, third = await tower.prepare(3)
    for endpoint in (second, third):
        await tower.accept(endpoint, 19)
    while await tower._waits():
        await tower.deliver(200)
    await tower.kill(first, 2)
    await tower.run()
    assert await tower.alerts(Rule.FAILURE_RATE) == []
    await tower.kill(first, 1)
    await tower.run()
    assert len(await tower.alerts(Rule.FAILURE_RATE)) == 1


async def test_the_trouble_of_one_endpoint_is_not_told_again_as_that_of_the_whole_organization() -> None:
    tower = Tower()
    (endpoint, _) = await tower.prepare(2)
    await tower.kill(endpoint, 30)
    await tower.run()
    await tower.review()
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == [endpoint.endpoint_id]


async def test_what_dies_while_it_is_measured_does_not_become_the_trouble_of_the_whole_organization() -> None:
    """Each query to the store finds more deaths of one endpoint than the query before. That endpoint has its own alert,
    so its later deaths must also be subtracted from the organization's figures."""
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    await tower.accept(other, 25)
    while await tower._waits():
        await tower.deliver(200)
    await tower.kill(endpoint, 30)
    await tower.run()
    ask = tower.failing._call

    async def meanwhile(verb: str, *args: object, **named: object) -> object:
        if verb in ("figures", "series"):
            tower.failing._call = ask  # type: ignore[method-assign]
            await tower.kill(endpoint, 10)
            tower.failing._call = meanwhile  # type: ignore[method-assign]
        return await ask(verb, *args, **named)

    tower.failing._call = meanwhile  # type: ignore[method-assign]
    for _ in range(3):  # single rounds, since each one creates incidents for the next
        tower.clock.advance(REVIEW_SECONDS)
        await tower.watch.run_once()
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == [endpoint.endpoint_id]


async def test_an_alarm_of_the_whole_that_is_only_an_endpoint_s_own_ends_though_that_goes_on() -> None:
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    await tower.accept(other, 25)
    while await tower._waits():
        await tower.deliver(200)
    await tower.kill(endpoint, 30)
    await tower.run()
    (own,) = await tower.alerts(Rule.FAILURE_RATE)
    false = replace(own, alert_id=new_id(), endpoint_id=None, endpoint_name="", opened_at=own.opened_at + 1)
    assert await tower.store.write_alerts(AlertWrite(org_id=tower.org.org_id, changes=(AlertChange(false, 0),)))
    await tower.review()
    assert [(one.endpoint_id, one.is_open) for one in await tower.alerts(Rule.FAILURE_RATE)] == [
        (endpoint.endpoint_id, True),
        (None, False),
    ]


async def test_an_endpoint_that_is_told_of_later_does_not_end_the_alarm_of_the_whole() -> None:
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    for one in (endpoint, other):
        await tower.kill(one, 15)
    await tower.run()
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == [None], "30 together, 15 each"
    tower.clock.advance(1)
    await tower.kill(endpoint, 20)
    await tower.run()
    assert [(one.endpoint_id, one.is_open) for one in await tower.alerts(Rule.FAILURE_RATE)] == [
        (None, True),
        (endpoint.endpoint_id, True),
    ]


@pytest.mark.parametrize("was_told", [True, False])
async def test_an_endpoint_that_fails_and_is_deleted_does_not_become_the_trouble_of_the_whole_organization(
    was_told: bool,
) -> None:
    """This holds whether or not the alert was sent before the deletion: the problem is gone."""
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    await tower.kill(endpoint, 30)
    if was_told:
        await tower.run()
    await tower.change(endpoint, state=EndpointState.DELETED)
    await tower.run()
    for _ in range(5):
        await tower.review(60)
    told = [endpoint.endpoint_id] if was_told else []
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == told
    await tower.kill(other, 20)  # control: the other endpoints are still measured
    await tower.run()
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == [*told, other.endpoint_id]


async def test_who_takes_over_leaves_those_out_that_failed_and_were_deleted_before_anybody_was_told() -> None:
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    await tower.kill(endpoint, 30)
    await tower.change(endpoint, state=EndpointState.DELETED)
    await tower.run()
    tower.clock.advance(60)
    heir = tower.another_watch("heir")
    for _ in range(2):
        await tower.kill(other)
        await tower.run(heir)
        tower.clock.advance(60)
    assert await tower.alerts(Rule.FAILURE_RATE) == []


async def test_who_takes_over_leaves_those_out_that_were_told_of_and_deleted() -> None:
    tower = Tower()
    endpoint, other = await tower.prepare(2)
    wide = AlertRule(org_id=tower.org.org_id, rule=Rule.FAILURE_RATE, threshold=5, window_seconds=86_400, minimum=20)
    await tower.arrange(wide)
    await tower.kill(endpoint, 30)
    await tower.run()
    await tower.change(endpoint, state=EndpointState.DELETED)
    await tower.run()
    tower.clock.advance(2 * 3_600)  # longer than the cooldown but within the window
    heir = tower.another_watch("heir")
    for _ in range(2):
        await tower.kill(other)
        await tower.run(heir)
        tower.clock.advance(60)
    assert [one.endpoint_id for one in await tower.alerts(Rule.FAILURE_RATE)] == [endpoint.endpoint_id]


# -- operational events ------------------------------------------------------------------------------------


async def test_what_is_so_with_an_endpoint_is_sent_in_its_order_and_deaths_hold_up_nobody() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare(circuit=FRAGILE)
    asking = an_endpoint(tower.org.org_id, event_types=("circuit.*", "delivery.dead", "alert.*"))
    await put(tower.store, asking, 0)
    await tower.directory.refresh()
    await tower.kill(endpoint, status=404)
    await tower.run()
    keys = {(one.event_type, one.options.ordering_key) for one in await tower.store.outbox(10)}
    fired = {("alert.fired", str(alert.alert_id)) for alert in await tower.alerts()}
    assert keys == fired | {("delivery.dead", None), ("circuit.opened", str(endpoint.endpoint_id))}
    assert len(fired) == 2


# -- other rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "fields"), [(Rule.DEAD_LETTERS, {"threshold": 3}), (Rule.FAILURE_RATE, {"threshold": 5, "minimum": 4})]
)
async def test_a_threshold_that_is_lowered_fires_without_another_death(rule: Rule, fields: dict[str, float]) -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 4)
    await tower.run()
    assert await tower.alerts(rule) == []
    lowered = AlertRule(org_id=tower.org.org_id, rule=rule, window_seconds=900, **fields)  # type: ignore[arg-type]
    await tower.arrange(lowered)
    await tower.watch.run_once()
    assert len(await tower.alerts(rule)) == 1


async def test_a_window_that_is_widened_finds_what_died_before_the_old_one() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint, 30)
    await tower.run()
    await tower.review(1_800)
    assert [one.is_open for one in await tower.alerts(Rule.FAILURE_RATE)] == [False]
    wider = AlertRule(org_id=tower.org.org_id, rule=Rule.FAILURE_RATE, threshold=5, window_seconds=3_600, minimum=20)
    await tower.arrange(wider)
    await tower.watch.run_once()
    (alert,) = await tower.alerts(Rule.FAILURE_RATE)
    assert (alert.is_open, alert.count) == (True, 2)


async def test_a_threshold_for_what_is_late_that_is_lowered_fires_at_once() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.accept(endpoint)
    await tower.review(30)
    await tower.arrange(AlertRule(org_id=tower.org.org_id, rule=Rule.OLDEST_DUE, threshold=20))
    await tower.watch.run_once()
    assert len(await tower.alerts(Rule.OLDEST_DUE)) == 1


@pytest.mark.parametrize("rule", [Rule.CIRCUIT_OPENED, Rule.ENDPOINT_DISABLED])
async def test_a_rule_that_is_turned_on_tells_of_what_has_been_the_case_all_the_while(rule: Rule) -> None:
    tower = Tower()
    endpoint, _, gone = await tower.prepare(3, circuit=FRAGILE)
    off = AlertRule(org_id=tower.org.org_id, rule=rule, enabled=False)
    await tower.arrange(off)
    await tower.accept(endpoint)
    await tower.accept(gone)
    await tower.deliver(503)
    for one in (endpoint, gone):
        await tower.change(one, state=EndpointState.DISABLED, state_reason="it is gone")
    await tower.change(gone, state=EndpointState.DELETED)
    await tower.run()
    assert await tower.alerts(rule) == []
    await tower.arrange(replace(off, enabled=True, version=1))
    await tower.watch.run_once()
    (alert,) = await tower.alerts(rule)
    assert (alert.endpoint_id, alert.endpoint_name, alert.told) == (endpoint.endpoint_id, endpoint.name, True)
    assert alert.reason == ("1 failure in a row" if rule is Rule.CIRCUIT_OPENED else "it is gone")
    await tower.arrange(Silence(silence_id=new_id(), org_id=tower.org.org_id, from_at=0, until_at=1))
    await tower.run()
    assert [one.count for one in await tower.alerts(rule)] == [1], "it is the same"


async def test_an_alert_whose_endpoint_rule_is_reset_or_turned_off_ends_and_is_not_called_a_recovery() -> None:
    tower = Tower()
    one, other = await tower.prepare(2)
    rules = [
        AlertRule(org_id=tower.org.org_id, rule=Rule.DEAD_LETTERS, threshold=0, endpoint_id=endpoint.endpoint_id)
        for endpoint in (one, other)
    ]
    for rule, endpoint in zip(rules, (one, other), strict=True):
        await tower.arrange(rule)
        await tower.kill(endpoint)
    await tower.run()
    assert len(await tower.alerts(Rule.DEAD_LETTERS)) == 2
    assert rules[0].endpoint_id == one.endpoint_id
    assert await tower.store.write([Delete(document=rules[0])], tower.line())
    await tower.arrange(replace(rules[1], enabled=False, version=1))
    await tower.run()
    assert {alert.ended_because for alert in await tower.alerts(Rule.DEAD_LETTERS)} == {Ending.RULE_CHANGED}


# -- endpoints that change ---------------------------------------------------------------------------------


async def _opened(tower: Tower) -> Endpoint:
    (endpoint,) = await tower.prepare(circuit=FRAGILE)
    await tower.channel()
    await tower.accept(endpoint)
    await tower.deliver(503)
    await tower.run()
    return endpoint


async def test_the_alerts_of_an_endpoint_that_is_deleted_end_and_say_so() -> None:
    tower = Tower()
    endpoint = await _opened(tower)
    await tower.change(endpoint, state=EndpointState.DELETED)
    await tower.run()
    (alert,) = await tower.alerts(Rule.CIRCUIT_OPENED)
    assert alert.ended_because is Ending.ENDPOINT_DELETED
    assert b"The endpoint was deleted" not in (await tower.store.outbox(10))[-1].payload  # webhook data has the reason
    assert b'"ended_because":"endpoint_deleted"' in (await tower.store.outbox(10))[-1].payload


async def test_a_circuit_that_opens_after_its_endpoint_was_deleted_is_no_alert() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.change(endpoint, state=EndpointState.DELETED)
    await tower.run()
    opened = Circuit(endpoint_id=endpoint.endpoint_id, state=CircuitState.OPEN, changed_at=tower.clock.now())
    assert await tower.store.put_circuit(opened, 0, "5 failures in a row")
    await tower.run()
    assert await tower.alerts() == []
    assert not await tower.store.any_waiting(Topic.INCIDENTS)


async def test_pausing_a_disabled_endpoint_ends_its_alert_and_tells_nobody_that_it_is_enabled() -> None:
    tower = Tower()
    endpoint, listener = await tower.prepare(2)
    await tower.change(listener, event_types=("endpoint.*",))
    for state in (EndpointState.DISABLED, EndpointState.PAUSED, EndpointState.ACTIVE):
        await tower.change(endpoint, state=state)
    await tower.run()
    (alert,) = await tower.alerts(Rule.ENDPOINT_DISABLED)
    assert alert.ended_because is Ending.ENDPOINT_PAUSED
    assert [one.event_type for one in await tower.store.outbox(10)] == ["endpoint.disabled"]


async def test_an_edit_does_not_make_a_late_delivery_young_again_but_a_resumption_does() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.accept(endpoint)
    tower.clock.advance(290)
    await tower.change(endpoint, name="renamed")
    await tower.review(20)
    (alert,) = await tower.alerts(Rule.OLDEST_DUE)
    assert alert.is_open
    for state in (EndpointState.PAUSED, EndpointState.ACTIVE):
        await tower.change(endpoint, state=state)
    await tower.review()
    assert [one.is_open for one in await tower.alerts(Rule.OLDEST_DUE)] == [False]
    await tower.review(290)
    assert [one.is_open for one in await tower.alerts(Rule.OLDEST_DUE)] == [False]


# -- silences ----------------------------------------------------------------------------------------------


async def test_a_recovery_within_a_silence_is_told_when_the_silence_ends_however_long_it_was() -> None:
    tower = Tower()
    endpoint = await _opened(tower)
    now = tower.clock.now()
    days = 40 * 86_400  # longer than alerts are retained
    silence = Silence(silence_id=new_id(), org_id=tower.org.org_id, from_at=now, until_at=now + seconds(days))
    await tower.arrange(silence)
    kept = await tower.store.get(Circuit, None, endpoint.endpoint_id)
    closed = replace(kept, state=CircuitState.CLOSED, changed_at=now + SECOND)
    assert await tower.store.put_circuit(closed, kept.version, "it works")
    await tower.review()
    assert await told_of_circuits(tower) == ["alert.fired"]
    await tower.review(days / 2)
    assert await told_of_circuits(tower) == ["alert.fired"]
    await tower.review(days / 2 - REVIEW_SECONDS)
    assert await told_of_circuits(tower) == ["alert.fired", "alert.recovered"]
    await tower.review()
    assert await told_of_circuits(tower) == ["alert.fired", "alert.recovered"]
