"""Endpoints in a scene, and helpers that read the console's pages about them."""

from __future__ import annotations

import html
import re

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.endpoint import CircuitRules, CircuitState, Endpoint
from tests.console.visiting import Shown
from tests.support.scene import Scene, until

ENDPOINTS = "/console/endpoints"
SECRET = re.compile(r'<code id="secret">([^<]*)</code>')


def page_of(endpoint: Endpoint) -> str:
    return f"{ENDPOINTS}/{endpoint.endpoint_id}"


def names_in(shown: Shown) -> list[str]:
    """The endpoint names in the list, in order."""
    return [html.unescape(one) for one in re.findall(r'<td class="name"><a [^>]*>(.*?)</a>', shown.source)]


async def stored(scene: Scene, endpoint: Endpoint) -> Endpoint:
    return await scene.doorstep.components.reader.endpoint(DEFAULT_ORG, endpoint.endpoint_id)


async def audited(scene: Scene, action: str) -> str:
    """The newest audit entry for this action, as text."""
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, action, None, 10)).items
    return str(line)


async def open_circuit(scene: Scene, name: str = "dead-erp") -> Endpoint:
    """An endpoint whose circuit opened on the first failure, and stays open."""
    scene.receiver.says(503)
    rules = CircuitRules(failures_max=1, open_seconds=3_600, probe_seconds_min=3_600)
    endpoint = await scene.endpoint(f"/{name}", name=name, policy="carrier", circuit=rules)
    await scene.send_to(endpoint)

    async def opened() -> bool:
        return (
            await scene.doorstep.components.reader.circuit(DEFAULT_ORG, endpoint.endpoint_id)
        ).state is CircuitState.OPEN

    await until(opened, "an open circuit")
    scene.receiver.says(200)
    return endpoint


async def held(scene: Scene, endpoint: Endpoint, count: int) -> None:
    """Pause the endpoint and send it this many events, so that their deliveries are held."""
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "test")
    await scene.send_to(endpoint, count)
