"""Creates deliveries in a scene that wait for a retry."""

from __future__ import annotations

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import RetryQueueFilter
from tests.support.scene import Scene, until

QUEUE = "/console/retry-queue"


async def failing(scene: Scene, count: int, name: str = "dead-erp") -> list[Delivery]:
    """Create this many deliveries that failed once and are retried after an hour."""
    scene.receiver.says(503)
    endpoint = await scene.endpoint(name=name, policy="carrier")
    await scene.send_to(endpoint, count)

    async def waiting() -> bool:
        return len(await queued(scene, endpoint)) == count

    await until(waiting, f"{count} in the retry queue")
    return await queued(scene, endpoint)


async def queued(scene: Scene, endpoint: Endpoint) -> list[Delivery]:
    wanted = RetryQueueFilter(waiting=True, endpoint_id=endpoint.endpoint_id)
    page, _ = await scene.doorstep.components.reader.retry_queue(DEFAULT_ORG, wanted, None, 100)
    return list(page.items)
