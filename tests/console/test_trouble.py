"""An endpoint is failing by one and the same rule, wherever the console tells of it."""

from __future__ import annotations

import re

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.pages import overview
from doorstep.console.trouble import Trouble, trouble_of
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.rollup import Figures
from doorstep.path.reporting import Health
from tests.acceptance.scene import Scene
from tests.builders import an_endpoint
from tests.console.endpoint_pages import ENDPOINTS, names_in, open_circuit
from tests.console.queueing import failing
from tests.console.visiting import Console

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
        (health(succeeded=94, dead=6), Trouble("failing", "6% failed for good")),
        (health(dead=1, failures=1), Trouble("failing", "100% failed for good")),
        (health(circuit=HALF_OPEN, failures=5, dead=1), Trouble("half_open", "5 failures in a row")),
        (health(DISABLED, HALF_OPEN), Trouble("disabled", "disabled")),
    ],
)
def test_trouble_is_being_cut_off_or_losing_more_than_one_in_twenty(seen: Health, expected: Trouble) -> None:
    assert trouble_of(seen) == expected


async def test_the_overview_counts_what_the_list_of_endpoints_shows(scene: Scene, console: Console) -> None:
    await open_circuit(scene)
    await failing(scene, 1, "slow-crm")  # a failure that is tried again
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
    """How many endpoints are failing, and which need somebody, as the overview says."""
    source = (await console.get("/console")).source
    (count,) = re.findall(r'Endpoints failing</span><span class="value">(.*?)</span>', source)
    needy = re.findall(r'<li id="trouble-.*?<a [^>]*>(.*?)</a>', source, re.DOTALL)
    return count, set(needy)


async def test_a_count_over_some_of_the_endpoints_says_that_there_may_be_more(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "JUDGED_MAX", 1)
    await open_circuit(scene)
    assert (await told(console))[0] == "1"
    await scene.endpoint(name="beyond")
    assert (await told(console))[0] == "1+"
