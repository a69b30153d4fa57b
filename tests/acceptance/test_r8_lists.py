"""R8.4 over HTTP: deliveries and attempts as lists, successes included."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Api, lasting
from tests.support.scene import Scene, until


async def filled(scene: Scene, api: Api) -> dict[str, Any]:
    """Two endpoints, each with deliveries that succeeded; one also with a dead letter and a delivery that waits."""
    shop = await api.endpoint(scene.receiver.url(), name="shop", policy=[3600], event_types=["order.*"])
    crm = await api.endpoint(scene.receiver.url(), name="crm", policy=[3600], event_types=["user.*"])
    delivered = [await api.send("order.paid") for _ in range(3)]
    other = await api.send("user.created")
    await _until_listed(api, "state=delivered", 4)
    scene.receiver.says(400)
    dead = await api.send("order.refunded")
    await _until_listed(api, "state=dead", 1)
    scene.receiver.says(503)
    waiting = await api.send("order.shipped")
    await _until_listed(api, "state=pending&error_code=SERVICE_UNAVAILABLE", 1)
    return {"shop": shop, "crm": crm, "delivered": delivered, "other": other, "dead": dead, "waiting": waiting}


async def listed(api: Api, query: str = "", of: str = "deliveries") -> list[str]:
    return [one["event_id"] for one in await api.all(f"/v1/{of}?{query}", of)]


async def _until_listed(api: Api, query: str, count: int) -> None:
    async def reached() -> bool:
        return len(await listed(api, query)) == count

    await until(reached, query)


async def test_the_deliveries_of_one_endpoint_are_listed_in_every_state_newest_first(scene: Scene, api: Api) -> None:
    found = await filled(scene, api)
    of_shop = f"endpoint_id={found['shop']['endpoint_id']}"
    newest_first = [found["waiting"], found["dead"], *found["delivered"][::-1]]
    assert await listed(api, of_shop) == newest_first
    assert await listed(api) == [*newest_first[:2], found["other"], *newest_first[2:]]
    assert await listed(api, f"{of_shop}&state=delivered") == newest_first[2:]
    assert await listed(api, f"{of_shop}&state=dead") == [found["dead"]]
    assert await listed(api, f"{of_shop}&state=in_progress") == []
    assert await listed(api, f"{of_shop}&event_type=user.*") == []
    assert await listed(api, "event_type=order.refunded") == [found["dead"]]
    assert await listed(api, "error_code=SERVICE_UNAVAILABLE") == [found["waiting"]]
    pages = [page async for page in api.pages(f"/v1/deliveries?{of_shop}", "deliveries", 2)]
    assert [len(page) for page in pages] == [2, 2, 1]


async def test_a_listed_delivery_says_to_what_how_it_ended_and_why(scene: Scene, api: Api) -> None:
    found = await filled(scene, api)
    answer = (await api.get("/v1/deliveries?state=dead")).json
    assert answer["pagination"] == {"limit": 50, "cursor": None, "has_more": False}
    (dead,) = answer["deliveries"]
    assert (dead["event_id"], dead["endpoint_name"], dead["state"]) == (found["dead"], "shop", "dead")
    assert (dead["error_code"], dead["response_code"], dead["attempts"]) == ("INVALID_FORMAT", 400, 1)


async def test_attempts_are_listed_newest_first_by_endpoint_result_type_and_code(scene: Scene, api: Api) -> None:
    found = await filled(scene, api)
    of_crm, of_shop = (f"endpoint_id={found[name]['endpoint_id']}" for name in ("crm", "shop"))
    assert await listed(api, of_crm, "attempts") == [found["other"]]
    assert (await listed(api, of_shop, "attempts"))[:2] == [found["waiting"], found["dead"]]
    assert sorted(await listed(api, f"{of_shop}&state=succeeded", "attempts")) == sorted(found["delivered"])
    assert await listed(api, "state=failed", "attempts") == [found["waiting"], found["dead"]]
    assert await listed(api, "error_code=INVALID_FORMAT", "attempts") == [found["dead"]]
    assert await listed(api, "event_type=user.created", "attempts") == [found["other"]]
    (one,) = (await api.get(f"/v1/attempts?{of_crm}")).json["attempts"]
    assert (one["endpoint_name"], one["number"], one["response_code"]) == ("crm", 1, 200)
    assert one["duration_ms"] >= 0


async def test_both_lists_are_narrowed_by_time(scene: Scene, api: Api) -> None:
    found = await filled(scene, api)
    dead = (await api.get("/v1/deliveries?state=dead")).json["deliveries"][0]
    since, until_then = f"since={dead['created_at']}", f"until={dead['created_at']}"
    assert await listed(api, since) == [found["waiting"], found["dead"]]
    assert found["dead"] not in await listed(api, until_then) and len(await listed(api, until_then)) == 4
    assert await listed(api, since, "attempts") == [found["waiting"], found["dead"]]
    assert len(await listed(api, until_then, "attempts")) == 4


async def test_a_deleted_dead_letter_is_in_no_list_but_its_attempt_is(scene: Scene, api: Api) -> None:
    found = await filled(scene, api)
    (dead,) = (await api.get("/v1/deliveries?state=dead")).json["deliveries"]
    await api.delete(f"/v1/dead-letters/{dead['delivery_id']}")
    assert found["dead"] not in await listed(api)
    assert found["dead"] in await listed(api, "state=failed", "attempts")


@lasting
@pytest.mark.parametrize("path", ["deliveries", "attempts"])
async def test_a_filter_that_is_unknown_or_invalid_is_refused_by_name(lasting_api: Api, path: str) -> None:
    for query in ("state=lost", "endpoint_id=shop", "since=yesterday", "until=1", "nothing=1", "cursor=x", "limit=0"):
        answer = await lasting_api.get(f"/v1/{path}?{query}")
        assert answer.status == 422, query
        assert query.partition("=")[0] in str(answer.json), query
