"""Creates alerts in a scene: an endpoint fails permanently, or its circuit opens."""

from __future__ import annotations

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.alert import Alert, AlertFilter, Rule
from doorstep.model.endpoint import CircuitRules, Endpoint
from tests.support.scene import NEVER_OPENS, Scene, until

ALERTS = "/console/alerts"


async def fire(scene: Scene, rule: Rule = Rule.DEAD_LETTER, name: str = "erp") -> Alert:
    """Create an open alert about an endpoint with this name."""
    endpoint = await failing(scene, rule, name)
    await scene.send_to(endpoint)

    async def open_now() -> bool:
        return any(_is_about(one, rule, name) for one in await alerts(scene))

    await until(open_now, f"an alert {rule}")
    return next(one for one in await alerts(scene) if _is_about(one, rule, name))


def _is_about(alert: Alert, rule: Rule, name: str) -> bool:
    return alert.rule is rule and alert.endpoint_name == name


async def failing(scene: Scene, rule: Rule, name: str) -> Endpoint:
    opens = rule is Rule.CIRCUIT_OPENED
    scene.receiver.says(503 if opens else 401)
    circuit = CircuitRules(1, 3_600) if opens else NEVER_OPENS
    return await scene.endpoint(f"/{name}", name=name, policy="carrier", circuit=circuit)


async def alerts(scene: Scene, is_open: bool | None = True) -> list[Alert]:
    found = await scene.doorstep.components.alerts.alerts(DEFAULT_ORG, AlertFilter(is_open=is_open), None, 50)
    return list(found.items)


async def end(scene: Scene, alert: Alert) -> None:
    """Disable the alert's rule, which closes the alert immediately."""
    desk = scene.doorstep.components.alerts
    await desk.set_rule(DEFAULT_ORG, alert.rule, None, {"enabled": False}, "test")

    async def over() -> bool:
        return not (await desk.alert(DEFAULT_ORG, alert.alert_id)).is_open

    await until(over, "the end of the alert")
