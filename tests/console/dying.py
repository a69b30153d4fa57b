"""Creates dead letters in a scene: the receiver fails permanently, with a different status for each path."""

from __future__ import annotations

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import DeadLetterFilter
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene, until

LETTERS = "/console/dead-letters"
REFUSALS = {"/crm": 401, "/shop": 404, "/erp": 422}
"""The status that each path answers, which gives three causes."""
ALL = DeadLetterFilter()
PAYLOAD = b'{"order":7,"price":1.10}'


async def refuse(scene: Scene) -> None:
    """Let the receiver refuse every request until `scene.receiver.says` changes this."""
    scene.receiver.answer = lambda request: Answer(REFUSALS.get(request.path, 400))


async def die(
    scene: Scene, count: int = 1, path: str = "/crm", event_type: str = "order.paid", payload: bytes = PAYLOAD
) -> list[Delivery]:
    """Create this many dead letters with one cause; returns them newest first."""
    await refuse(scene)
    endpoint = await endpoint_at(scene, path)
    before = await scene.count(DeliveryState.DEAD)
    await scene.doorstep.send_many([(event_type, payload, {"endpoint_ids": [endpoint.endpoint_id]})] * count)

    async def dead() -> bool:
        return await scene.count(DeliveryState.DEAD) == before + count

    await until(dead, f"{count} more dead letters")
    return [one for one in await letters(scene) if one.endpoint_id == endpoint.endpoint_id][:count]


async def endpoint_at(scene: Scene, path: str) -> Endpoint:
    found = await scene.doorstep.components.reader.endpoints(DEFAULT_ORG, None, None, 50)
    known = {one.name: one for one in found.items}
    return known.get(path[1:]) or await scene.endpoint(path, name=path[1:])


async def letters(scene: Scene, wanted: DeadLetterFilter = ALL) -> list[Delivery]:
    page, _ = await scene.doorstep.components.reader.dead_letters(DEFAULT_ORG, wanted, None, 200)
    return list(page.items)


async def three_causes(scene: Scene) -> None:
    """Create 142 dead letters with three different causes."""
    for path, count in zip(REFUSALS, (100, 40, 2)):
        await die(scene, count, path)


async def state_of(scene: Scene, delivery: Delivery) -> DeliveryState:
    return (await scene.delivery(delivery)).state
