"""R10.4: a problem is stored together with the change that caused it, and is notified once."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.alert import (
    Alert,
    AlertChange,
    AlertConfig,
    AlertConfigs,
    AlertFilter,
    AlertRule,
    AlertWrite,
    Channel,
    ChannelKind,
    Incident,
    IncidentKind,
    Incidents,
    LiveAlerts,
    OrgsToReview,
    OrgsWithIncidents,
    Rule,
    Silence,
)
from doorstep.model.attempt import Code
from doorstep.model.delivery import cause_of
from doorstep.model.endpoint import Circuit, CircuitState, EndpointState
from doorstep.model.listing import AuditFilter
from doorstep.model.outbox import OutboxMessage
from doorstep.stores.store import Delete, Retention, Store, Topic
from tests.contract.scene import Scene
from tests.support.builders import a_submission, an_endpoint, an_org, new_id
from tests.support.shortcuts import put, routing_versions


async def kinds(scene: Scene) -> list[IncidentKind]:
    return [one.kind for one in await scene.store.find(scene.org_id, Incidents(limit=100))]


async def a_death_in_another_org(scene: Scene, deaths: int = 1) -> UUID:
    """Create a dead letter in another organization; return the organization's id."""
    org = an_org()
    await put(scene.store, org)
    endpoint = an_endpoint(org.org_id)
    await put(scene.store, endpoint, 0)
    made = [a_submission(org.org_id, [endpoint.endpoint_id], created_at=scene.now) for _ in range(deaths)]
    await scene.store.accept(made, await routing_versions(scene.store), scene.now)
    await scene.store.dead_letter_waiting(endpoint.endpoint_id, Code.SKIPPED, "skipped", scene.now, deaths)
    return org.org_id


def an_alert(scene: Scene, **changes: object) -> Alert:
    fields: dict[str, object] = {"alert_id": new_id(), "org_id": scene.org_id, "rule": Rule.CIRCUIT_OPENED}
    fields |= {"opened_at": scene.now, "seen_at": scene.now, "endpoint_id": scene.endpoint.endpoint_id}
    return Alert(**fields | changes)  # type: ignore[arg-type]


def an_alert_write(scene: Scene, *alerts: Alert, **fields: object) -> AlertWrite:
    changes = tuple(AlertChange(alert, alert.version) for alert in alerts)
    return AlertWrite(org_id=scene.org_id, changes=changes, **fields)  # type: ignore[arg-type]


def a_line(scene: Scene) -> AuditEntry:
    return AuditEntry(at=scene.now, org_id=scene.org_id, actor="ops", action="x", subjects=(), result="ok")


def a_rule(scene: Scene, **changes: object) -> AlertRule:
    return AlertRule(**{"org_id": scene.org_id, "rule": Rule.DEAD_LETTERS, "threshold": 7.0} | changes)  # type: ignore[arg-type]


async def put_config(scene: Scene, config: AlertConfig, version: int = 0, limit: int = 10) -> bool:
    return await put(scene.store, config, version, entry=a_line(scene), limit=limit)


async def delete_config(scene: Scene, config: AlertConfig) -> bool:
    return await scene.store.write([Delete(document=config)], a_line(scene))


async def clean(scene: Scene, **before: int) -> int:
    return (await scene.store.clean(Retention(**before), scene.now, 100)).alerts


# -- incidents ---------------------------------------------------------------------------------------------


async def test_a_delivery_that_fails_for_good_leaves_an_incident_with_its_error(scene: Scene) -> None:
    (submission,) = await scene.accept()
    await scene.kill(await scene.claim_one())
    (incident,) = await scene.store.find(scene.org_id, Incidents(limit=10))
    cause = cause_of(scene.endpoint.endpoint_id, Code.NOT_FOUND, "no such page")
    assert replace(incident, key=0) == Incident(
        kind=IncidentKind.DELIVERY_DEAD,
        org_id=scene.org_id,
        endpoint_id=scene.endpoint.endpoint_id,
        at=scene.now,
        code=Code.NOT_FOUND,
        reason="no such page",
        delivery_id=submission.deliveries[0].delivery_id,
        event_id=submission.event.event_id,
        event_type=submission.event.event_type,
        attempts=1,
        cause=cause,
    )


async def test_what_is_delivered_or_tried_again_leaves_none(scene: Scene) -> None:
    await scene.accept(2)
    first, second = await scene.claim()
    await scene.deliver(first)
    await scene.fail(second)
    assert not await scene.store.any_waiting(Topic.INCIDENTS)
    assert await scene.store.find(scene.org_id, Incidents(limit=10)) == []


async def test_a_result_that_comes_too_late_leaves_none(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.kill(claim)
    await scene.kill(claim)
    assert len(await scene.store.find(scene.org_id, Incidents(limit=10))) == 1


async def test_a_skipped_a_buried_and_an_expired_delivery_leave_one_each(scene: Scene) -> None:
    (skipped,) = await scene.accept()
    await scene.act(ActionKind.SKIP, skipped.deliveries[0].delivery_id)
    await scene.accept()
    await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, Code.ENDPOINT_DELETED, "deleted", scene.now, 10)
    (expired,) = await scene.accept(expires_at=scene.now + 1)
    scene.wait(SECOND)
    await scene.store.expire(Code.EXPIRED, "too old", 0, scene.now, 10)
    found = await scene.store.find(scene.org_id, Incidents(limit=10))
    assert [one.code for one in found] == [Code.SKIPPED, Code.ENDPOINT_DELETED, Code.EXPIRED]
    assert [one.event_type for one in found] == [expired.event.event_type] * 3
    assert all(one.cause is not None and one.kind is IncidentKind.DELIVERY_DEAD for one in found)


async def test_a_circuit_that_opens_and_one_that_closes_leave_one_each_but_a_failed_probe_none(scene: Scene) -> None:
    states = [CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED]
    for version, state in enumerate(states):
        circuit = Circuit(endpoint_id=scene.endpoint.endpoint_id, state=state, changed_at=scene.now)
        assert await scene.store.put_circuit(circuit, version, f"reason {version}")
    found = await scene.store.find(scene.org_id, Incidents(limit=10))
    assert [one.kind for one in found] == [IncidentKind.CIRCUIT_OPENED, IncidentKind.CIRCUIT_CLOSED]
    assert [one.reason for one in found] == ["reason 0", "reason 4"]
    assert {one.org_id for one in found} == {scene.org_id}


async def test_a_circuit_that_another_wrote_first_leaves_none(scene: Scene) -> None:
    circuit = Circuit(endpoint_id=scene.endpoint.endpoint_id, state=CircuitState.OPEN)
    assert not await scene.store.put_circuit(circuit, 3, "stale")
    assert not await scene.store.any_waiting(Topic.INCIDENTS)


async def test_an_endpoint_that_is_disabled_enabled_and_deleted_leaves_one_each_but_a_pause_none(scene: Scene) -> None:
    for state in ("paused", "active", "disabled", "active", "deleted"):
        await scene.change_endpoint(state=EndpointState(state), state_reason=f"it is {state}", updated_at=scene.now)
    expected = [IncidentKind.ENDPOINT_DISABLED, IncidentKind.ENDPOINT_ENABLED, IncidentKind.ENDPOINT_DELETED]
    assert await kinds(scene) == expected
    assert (await scene.store.find(scene.org_id, Incidents(limit=1)))[0].reason == "it is disabled"


async def test_a_disabled_endpoint_that_is_paused_leaves_that_and_not_that_it_is_enabled(scene: Scene) -> None:
    for state in ("disabled", "paused", "active"):
        await scene.change_endpoint(state=EndpointState(state), updated_at=scene.now)
    assert await kinds(scene) == [IncidentKind.ENDPOINT_DISABLED, IncidentKind.ENDPOINT_PAUSED]


async def test_every_change_of_alert_settings_leaves_one(scene: Scene) -> None:
    await put_config(scene, a_rule(scene))
    await put_config(scene, a_rule(scene, threshold=9.0), version=1)
    await delete_config(scene, a_rule(scene))
    changed = Incident(kind=IncidentKind.RULES_CHANGED, org_id=scene.org_id, at=scene.now)
    assert [replace(one, key=0) for one in await scene.store.find(scene.org_id, Incidents(limit=10))] == [changed] * 3
    assert not await put_config(scene, a_rule(scene), version=7)
    assert len(await scene.store.find(scene.org_id, Incidents(limit=10))) == 3


async def test_each_organization_has_its_own_incidents_and_a_flood_of_one_hides_no_other(scene: Scene) -> None:
    assert await scene.store.find(None, OrgsWithIncidents()) == []
    flooding = await a_death_in_another_org(scene, 20)
    await scene.accept()
    await scene.kill(await scene.claim_one())
    assert set(await scene.store.find(None, OrgsWithIncidents())) == {flooding, scene.org_id}
    assert [one.org_id for one in await scene.store.find(scene.org_id, Incidents(limit=5))] == [scene.org_id]
    found = await scene.store.find(flooding, Incidents(limit=5))
    assert [one.org_id for one in found] == [flooding] * 5
    assert [one.key for one in found] == sorted(one.key for one in found)


# -- notifications -----------------------------------------------------------------------------------------


async def test_telling_removes_the_incidents_and_posts_messages_with_the_alert(
    scene: Scene, other_store: Store
) -> None:
    await scene.accept()
    await scene.kill(await scene.claim_one())
    (incident,) = await scene.store.find(scene.org_id, Incidents(limit=10))
    message = OutboxMessage(
        event_id=new_id(), org_id=scene.org_id, event_type="alert.fired", payload=b"{}", created_at=scene.now
    )
    alert = an_alert(scene)
    telling = an_alert_write(scene, alert, incident_keys=(incident.key,), messages=(message,), entry=a_line(scene))
    assert await scene.store.write_alerts(telling)
    assert not await other_store.any_waiting(Topic.INCIDENTS)
    assert await other_store.get(Alert, scene.org_id, alert.alert_id) == replace(alert, version=1)
    assert [one.event_id for one in await other_store.outbox(10)] == [message.event_id]
    assert len((await other_store.page(scene.org_id, AuditFilter())).items) == 1


async def test_the_same_incident_is_told_once_and_the_second_telling_changes_nothing(scene: Scene) -> None:
    await scene.accept()
    await scene.kill(await scene.claim_one())
    (incident,) = await scene.store.find(scene.org_id, Incidents(limit=10))
    first, second = an_alert(scene), an_alert(scene, rule=Rule.DEAD_LETTER)
    assert await scene.store.write_alerts(an_alert_write(scene, first, incident_keys=(incident.key,)))
    assert not await scene.store.write_alerts(an_alert_write(scene, second, incident_keys=(incident.key,)))
    with pytest.raises(NotFound):
        await scene.store.get(Alert, scene.org_id, second.alert_id)


async def test_an_incident_that_comes_later_never_has_the_number_of_one_that_was_told(scene: Scene) -> None:
    keys = []
    for _ in range(2):
        await scene.accept()
        await scene.kill(await scene.claim_one())
        (incident,) = await scene.store.find(scene.org_id, Incidents(limit=10))
        keys.append(incident.key)
        assert await scene.store.write_alerts(an_alert_write(scene, incident_keys=(incident.key,)))
    assert keys[0] != keys[1]


async def test_of_two_open_alerts_of_one_subject_only_the_first_is_written(scene: Scene, other_store: Store) -> None:
    assert await scene.store.write_alerts(an_alert_write(scene, an_alert(scene)))
    assert not await other_store.write_alerts(an_alert_write(scene, an_alert(scene)))
    assert await other_store.write_alerts(an_alert_write(scene, an_alert(scene, ended_at=scene.now)))


async def test_an_alert_computed_from_an_old_version_is_refused(scene: Scene) -> None:
    alert = an_alert(scene)
    await scene.store.write_alerts(an_alert_write(scene, alert))
    assert not await scene.store.write_alerts(an_alert_write(scene, replace(alert, count=2)))
    assert await scene.store.write_alerts(an_alert_write(scene, replace(alert, count=2, ended_at=scene.now, version=1)))
    assert (await scene.store.get(Alert, scene.org_id, alert.alert_id)).count == 2
    assert await scene.store.write_alerts(an_alert_write(scene, an_alert(scene)))


async def test_what_another_organization_has_is_unknown(scene: Scene) -> None:
    alert, rule = an_alert(scene), a_rule(scene)
    await scene.store.write_alerts(an_alert_write(scene, alert))
    await put_config(scene, rule)
    stranger = an_org()
    await put(scene.store, stranger)
    with pytest.raises(NotFound):
        await scene.store.get(Alert, stranger.org_id, alert.alert_id)
    assert not (await scene.store.page(stranger.org_id, AlertFilter())).items
    assert await scene.store.find(stranger.org_id, LiveAlerts(ended_after=0)) == []
    assert await scene.store.find(stranger.org_id, AlertConfigs()) == []
    assert not await delete_config(scene, replace(rule, org_id=stranger.org_id))


# -- lists -------------------------------------------------------------------------------------------------


async def test_alerts_are_listed_newest_first_page_by_page_and_by_every_filter(scene: Scene) -> None:
    other = await scene.add_endpoint(name="other")
    made = [
        an_alert(scene, rule=rule, endpoint_id=endpoint, ended_at=ended)
        for rule in (Rule.DEAD_LETTER, Rule.OLDEST_DUE)
        for endpoint in (scene.endpoint.endpoint_id, other.endpoint_id)
        for ended in (None, scene.now)
    ]
    for alert in made:
        assert await scene.store.write_alerts(an_alert_write(scene, alert))
    assert await listed(scene, AlertFilter()) == ids(reversed(made))
    for wanted in (
        AlertFilter(is_open=True),
        AlertFilter(is_open=False),
        AlertFilter(rule=Rule.OLDEST_DUE),
        AlertFilter(endpoint_id=other.endpoint_id),
        AlertFilter(is_open=True, rule=Rule.DEAD_LETTER, endpoint_id=other.endpoint_id),
    ):
        assert await listed(scene, wanted) == ids(one for one in reversed(made) if matches(one, wanted))


def matches(alert: Alert, wanted: AlertFilter) -> bool:
    return (
        wanted.is_open in (None, alert.is_open)
        and wanted.rule in (None, alert.rule)
        and wanted.endpoint_id in (None, alert.endpoint_id)
    )


def ids(alerts: object) -> list[UUID]:
    return [one.alert_id for one in alerts]  # type: ignore[attr-defined]


async def listed(scene: Scene, wanted: AlertFilter) -> list[UUID]:
    found, cursor = [], None
    while True:
        page = await scene.store.page(scene.org_id, wanted, cursor, 3)
        found += ids(page.items)
        cursor = page.next
        if cursor is None:
            return found


async def test_live_alerts_are_those_that_are_open_have_yet_to_be_told_or_may_come_back(scene: Scene) -> None:
    opened = an_alert(scene)
    recent = an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now)
    old = an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now - 10)
    letter = an_alert(scene, rule=Rule.DEAD_LETTER, ended_at=scene.now)
    untold = an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now - 10, review_at=scene.now)
    await scene.store.write_alerts(an_alert_write(scene, opened, recent, old, letter, untold))
    assert ids(await scene.store.find(scene.org_id, LiveAlerts(ended_after=scene.now - 10))) == ids(
        [opened, untold, recent]
    )


async def test_an_organization_is_to_be_reviewed_from_the_instant_that_one_of_its_alerts_names(scene: Scene) -> None:
    alert = an_alert(scene, review_at=scene.now)
    await scene.store.write_alerts(
        an_alert_write(scene, alert, an_alert(scene, rule=Rule.OLDEST_DUE, review_at=scene.now))
    )
    await scene.store.write_alerts(an_alert_write(scene, an_alert(scene, rule=Rule.DEAD_LETTER)))
    assert await scene.store.find(None, OrgsToReview(now=scene.now - 1)) == []
    assert await scene.store.find(None, OrgsToReview(now=scene.now)) == [scene.org_id]
    both = await scene.store.find(scene.org_id, LiveAlerts(ended_after=0))
    await scene.store.write_alerts(an_alert_write(scene, *(replace(one, review_at=None) for one in both)))
    assert await scene.store.find(None, OrgsToReview(now=scene.now)) == []


async def test_alerts_and_silences_that_are_long_over_are_removed_and_nothing_else(scene: Scene) -> None:
    untold = an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now - 1, review_at=scene.now)
    kept = [an_alert(scene), an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now), untold]
    over = an_alert(scene, rule=Rule.OLDEST_DUE, ended_at=scene.now - 1)
    await scene.store.write_alerts(an_alert_write(scene, *kept, over))
    await put_config(scene, a_rule(scene))
    for until in (scene.now - 1, scene.now):
        await put_config(scene, Silence(silence_id=new_id(), org_id=scene.org_id, from_at=0, until_at=until))
    assert await clean(scene) == 0
    assert await clean(scene, alerts_before=scene.now) == 1
    assert await clean(scene, silences_before=scene.now) == 1
    assert await clean(scene, alerts_before=scene.now, silences_before=scene.now) == 0
    assert await listed(scene, AlertFilter()) == ids(reversed(kept))
    assert [type(one) for one in await scene.store.find(scene.org_id, AlertConfigs())] == [AlertRule, Silence]


# -- alert settings ------------------------------------------------------------------------------------------


async def test_rules_silences_and_channels_read_back_as_they_were_written(scene: Scene, other_store: Store) -> None:
    channel = Channel(
        channel_id=new_id(),
        org_id=scene.org_id,
        name="ops",
        means=ChannelKind.SLACK,
        shown="https://hooks.example/…",
        rules=(Rule.DEAD_LETTER,),
        endpoint_ids=(scene.endpoint.endpoint_id,),
        created_at=scene.now,
    )
    silence = Silence(silence_id=new_id(), org_id=scene.org_id, from_at=1, until_at=2, rule=Rule.OLDEST_DUE)
    made: list[AlertConfig] = [a_rule(scene, endpoint_id=scene.endpoint.endpoint_id), channel, silence]
    for one in made:
        assert await put_config(scene, one)
    assert await other_store.find(scene.org_id, AlertConfigs()) == [replace(one, version=1) for one in made]


async def test_an_alert_setting_is_replaced_only_over_the_version_that_it_was_computed_from(scene: Scene) -> None:
    assert await put_config(scene, a_rule(scene))
    assert not await put_config(scene, a_rule(scene, threshold=9.0))
    assert await put_config(scene, a_rule(scene, threshold=9.0), version=1)
    assert await scene.store.find(scene.org_id, AlertConfigs()) == [a_rule(scene, threshold=9.0, version=2)]
    assert await delete_config(scene, a_rule(scene))
    assert not await delete_config(scene, a_rule(scene))


async def test_an_organization_has_no_more_alert_settings_than_allowed(scene: Scene) -> None:
    assert await put_config(scene, a_rule(scene), limit=1)
    with pytest.raises(Conflict):
        await put_config(scene, a_rule(scene, rule=Rule.OLDEST_DUE), limit=1)
    assert await put_config(scene, a_rule(scene), version=1, limit=1)


async def test_silences_that_are_over_take_no_room(scene: Scene) -> None:
    over, on = (
        Silence(silence_id=new_id(), org_id=scene.org_id, from_at=0, until_at=until)
        for until in (scene.now, scene.now + 1)
    )
    assert await put_config(scene, on, limit=2)
    assert await put_config(scene, over, limit=2)
    assert len(await scene.store.find(scene.org_id, AlertConfigs())) == 2
    assert await put_config(scene, a_rule(scene), limit=2)
    assert await scene.store.find(scene.org_id, AlertConfigs()) == [replace(on, version=1), a_rule(scene, version=1)]
    with pytest.raises(Conflict):
        await put_config(scene, a_rule(scene, rule=Rule.OLDEST_DUE), limit=2)


async def test_an_alert_that_ends_makes_room_for_its_successor_in_the_same_write(scene: Scene) -> None:
    first = an_alert(scene)
    await scene.store.write_alerts(an_alert_write(scene, first))
    second = an_alert(scene)
    assert await scene.store.write_alerts(an_alert_write(scene, replace(first, ended_at=scene.now, version=1), second))
    assert ids(await scene.store.find(scene.org_id, LiveAlerts(ended_after=scene.now))) == [second.alert_id]
