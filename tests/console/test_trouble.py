"""Every page of the console uses the same rule to decide whether an endpoint is failing."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.pages import endpoints, overview
from doorstep.console.pages.endpoints import Trouble, trouble_of
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.rollup import Figures
from doorstep.operations.stats import Health
from tests.console.endpoint_pages import ENDPOINTS, names_in, open_circuit, page_of
from tests.console.firing import fire
from tests.console.queueing import failing
from tests.console.visiting import Console, Shown
from tests.support.builders import an_endpoint
from tests.support.scene import Scene
from tests.support.shortcuts import put

ACTIVE, PAUSED, DISABLED = EndpointState.ACTIVE, EndpointState.PAUSED, EndpointState.DISABLED
CLOSED, HALF_OPEN = CircuitState.CLOSED, CircuitState.HALF_OPEN


def health(
    state: EndpointState = ACTIVE, circuit: CircuitState = CLOSED, failures: int = 0, succeeded: int = 0, dead: int = 0
) -> Health:
    one = an_endpoint(DEFAULT_ORG, state=state)
    recent = Figures(succeeded=succeeded, dead=dead)
    return Health(one, recent, Figures(), Circuit(endpoint_id=one.endpoint_id, state=circuit, failures=failures), None)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (health(), Trouble()),
        (health(PAUSED), Trouble()),
        (health(failures=3), Trouble("", "3 failures in a row")),
        (health(succeeded=95, dead=5), Trouble()),
        (health(succeeded=94, dead=6), Trouble("failing", "6% failed permanently")),
        (health(dead=1, failures=1), Trouble("failing", "100% failed permanently")),
        (health(circuit=HALF_OPEN, failures=5, dead=1), Trouble("half_open", "5 failures in a row")),
        (health(DISABLED, HALF_OPEN), Trouble("disabled", "disabled")),
    ],
)
def test_trouble_is_being_cut_off_or_losing_more_than_one_in_twenty(seen: Health, expected: Trouble) -> None:
    assert trouble_of(seen) == expected


async def test_the_overview_counts_what_the_list_of_endpoints_shows(scene: Scene, console: Console) -> None:
    await open_circuit(scene)
    await failing(scene, 1, "slow-crm")  # a failure that will be retried
    mostly = await scene.endpoint("/shop", name="mostly-good")
    scene.receiver.says(200)
    for delivery in await scene.send_to(mostly, 30):
        await scene.until_state(delivery, DeliveryState.DELIVERED)
    letter = await scene.endpoint("/letters", name="strict-accounting")
    scene.receiver.says(401)
    for delivery in [*await scene.send_to(mostly), *await scene.send_to(letter)]:
        await scene.until_state(delivery, DeliveryState.DEAD)
    listed = names_in(await console.get(f"{ENDPOINTS}?trouble=yes"))
    assert listed == ["dead-erp", "strict-accounting"]
    assert await told(console) == ("2", set(listed))


async def told(console: Console) -> tuple[str, set[str]]:
    """The number of failing endpoints, and the names of those that need attention, as shown in the overview."""
    source = (await console.get("/console")).source
    (count,) = re.findall(r'Endpoints failing</span><span class="value">(.*?)</span>', source)
    needy = re.findall(r'<li id="trouble-.*?<a [^>]*>(.*?)</a>', source, re.DOTALL)
    return count, set(needy)


async def test_trouble_is_found_behind_any_number_of_endpoints_the_worst_first(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most three endpoints are checked in detail, and healthy endpoints are not among them."""
    monkeypatch.setattr(endpoints, "JUDGED_MAX", 3)
    monkeypatch.setattr(overview, "_SHOWN_MAX", 1)
    for number in range(4):
        await scene.endpoint(f"/{number}", name=f"well-{number}")
    await open_circuit(scene)
    off = await scene.endpoint("/off", name="switched-off")
    assert await told(console) == ("1", {"dead-erp"})
    await disable(scene, off)
    shown = await console.get("/console")
    assert await told(console) == ("2", {"switched-off"})
    assert "disabled switched-off it answered 410" in shown.text
    assert "and 1 more endpoint " in shown.text
    assert '<a href="/console/endpoints?trouble=yes">and 1 more' in shown.source
    assert rows_of_health(shown) == ["switched-off"], "not the oldest"
    assert names_in(await console.get(f"{ENDPOINTS}?trouble=yes")) == ["switched-off", "dead-erp"]


async def test_where_more_may_be_in_trouble_than_are_judged_it_says_so(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "JUDGED_MAX", 1)
    await open_circuit(scene)
    assert (await told(console))[0] == "1+"
    assert "and perhaps more endpoints" in (await console.get("/console")).text
    assert "There may be more" in (await console.get(f"{ENDPOINTS}?trouble=yes")).text


async def test_the_list_of_those_in_trouble_has_pages(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "_LIMIT", 1)
    for name in ("first-erp", "second-erp"):
        await open_circuit(scene, name)
    for query in ("trouble=yes", "waiting=yes", "trouble=yes&waiting=yes"):
        first = await console.get(f"{ENDPOINTS}?{query}")
        (onward,) = re.findall(r'href="([^"]*)" rel="next"', first.source)
        second = await console.get(html.unescape(onward))
        assert sorted([*names_in(first), *names_in(second)]) == ["first-erp", "second-erp"], query
        assert 'rel="next"' not in second.source
    assert (await console.get(f"{ENDPOINTS}?trouble=yes&cursor=nonsense")).status == 422


async def test_the_depth_of_the_queue_leads_to_whom_it_waits_for_what_nothing_holds_first(
    scene: Scene, console: Console
) -> None:
    await open_circuit(scene)
    await scene.endpoint("/idle", name="idle")
    await failing(scene, 1, "slow-crm")
    source = (await console.get("/console")).source
    for name in ("Queue depth", "Oldest due"):
        assert f'<a href="{ENDPOINTS}?waiting=yes"><span class="name">{name}' in source
    assert names_in(await console.get(f"{ENDPOINTS}?waiting=yes")) == ["slow-crm", "dead-erp"]


async def test_what_needs_somebody_says_why_and_leaves_out_what_somebody_sees_to(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert = await fire(scene)
    shown = await console.get("/console")
    assert "failing erp 100% failed permanently; 1 dead letter" in shown.text
    assert f'<li id="alert-{alert.alert_id}">' in shown.source
    await scene.doorstep.components.alerts.acknowledge(DEFAULT_ORG, alert.alert_id, "test")
    assert f'<li id="alert-{alert.alert_id}">' not in (await console.get("/console")).source
    monkeypatch.setattr(endpoints, "_FAILING_BELOW", 0)
    assert "every open alert is acknowledged" in (await console.get("/console")).text


async def test_a_probe_is_amber_and_spelled_alike_everywhere(scene: Scene, console: Console) -> None:
    probed = await open_circuit(scene)
    circuit = await scene.doorstep.components.reader.circuit(DEFAULT_ORG, probed.endpoint_id)
    await scene.doorstep.components.store.put_circuit(replace(circuit, state=HALF_OPEN), circuit.version)
    for path in ("/console", ENDPOINTS, page_of(probed)):
        source = (await console.get(path)).source
        assert '<span class="badge half_open">circuit half-open</span>' in source, path
        assert "half open" not in source


def rows_of_health(shown: Shown) -> list[str]:
    return re.findall(r'<tr id="health-.*?<a [^>]*>(.*?)</a>', shown.source, re.DOTALL)


async def disable(scene: Scene, endpoint: Endpoint) -> None:
    known = await scene.doorstep.components.reader.endpoint(DEFAULT_ORG, endpoint.endpoint_id)
    gone = replace(known, state=DISABLED, state_reason="it answered 410", state_since=scene.clock.now())
    assert await put(scene.doorstep.components.store, gone, known.version)
