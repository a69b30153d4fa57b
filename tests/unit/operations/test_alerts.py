"""Alert configuration is validated before it is stored, the same way for every store; errors name the field."""

from __future__ import annotations

import pytest

from doorstep.clock import seconds
from doorstep.errors import InvalidInput
from doorstep.model.alert import AlertConfigs, Rule
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.operations.alerts import AlertService
from tests.support.builders import new_id
from tests.unit.services.tower import Tower


async def deleted(tower: Tower) -> Endpoint:
    (endpoint,) = await tower.prepare()
    await tower.change(endpoint, state=EndpointState.DELETED)
    return endpoint


@pytest.mark.parametrize("reason", ["seen\x00", "seen\ud800"])
async def test_an_alert_is_not_acknowledged_with_a_reason_that_some_store_cannot_keep(reason: str) -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    await tower.kill(endpoint)
    await tower.run()
    (alert,) = await tower.alerts()
    with pytest.raises(InvalidInput) as caught:
        await AlertService(tower.store, tower.clock).acknowledge(tower.org.org_id, alert.alert_id, "ops", reason)
    assert caught.value.field == "reason"
    assert [one.acknowledged_at for one in await tower.alerts()] == [None]


async def test_nothing_is_arranged_about_an_endpoint_that_is_not_there_or_not_any_more() -> None:
    tower = Tower()
    gone, org_id = await deleted(tower), tower.org.org_id
    desk = AlertService(tower.store, tower.clock)
    soon = tower.clock.now() + seconds(60)
    for endpoint_id in (gone.endpoint_id, new_id()):
        with pytest.raises(InvalidInput) as rule:
            await desk.set_rule(org_id, Rule.DEAD_LETTERS, endpoint_id, {"threshold": 1}, "ops")
        with pytest.raises(InvalidInput) as silence:
            await desk.silence(org_id, "ops", until_at=soon, endpoint_id=endpoint_id)
        assert rule.value.field == silence.value.field == "endpoint_id"
        assert str(endpoint_id) in rule.value.message
    assert await tower.store.find(org_id, AlertConfigs()) == []


async def test_what_was_arranged_about_an_endpoint_can_be_taken_back_when_it_is_deleted() -> None:
    tower = Tower()
    (endpoint,) = await tower.prepare()
    desk, org_id = AlertService(tower.store, tower.clock), tower.org.org_id
    rule = await desk.set_rule(org_id, Rule.DEAD_LETTERS, endpoint.endpoint_id, {"threshold": 1}, "ops")
    await tower.change(endpoint, state=EndpointState.DELETED)
    await desk.reset_rule(org_id, rule.config_id, "ops")
    assert await tower.store.find(org_id, AlertConfigs()) == []
