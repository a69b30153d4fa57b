"""The tabs of an endpoint that list its deliveries in every state and its attempts, with filters and live."""

from __future__ import annotations

import pytest

from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import DeliveryFilter
from tests.console.endpoint_pages import page_of
from tests.console.visiting import Console
from tests.support.scene import Scene


async def both_ends(scene: Scene) -> Endpoint:
    """An endpoint with a delivery that succeeded and one that failed permanently."""
    endpoint = await scene.endpoint(name="shop", event_types=("order.*",))
    await scene.until_state(await scene.send("order.paid"), DeliveryState.DELIVERED)
    scene.receiver.says(400)
    await scene.until_state(await scene.send("order.refunded"), DeliveryState.DEAD)
    return endpoint


async def test_the_page_of_an_endpoint_leads_to_its_deliveries_and_attempts(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    shown = await console.get(page_of(endpoint))
    for tab in ("deliveries", "attempts"):
        assert f'href="{page_of(endpoint)}/{tab}"' in shown.source


async def test_deliveries_that_succeeded_are_listed_beside_the_others(scene: Scene, console: Console) -> None:
    endpoint = await both_ends(scene)
    shown = await console.get(f"{page_of(endpoint)}/deliveries")
    assert shown.text.index("order.refunded") < shown.text.index("order.paid")
    assert "INVALID_FORMAT" in shown.text
    assert "data-live" in shown.source
    (delivery,) = (
        await scene.doorstep.components.reader.delivery_page(
            endpoint.org_id, DeliveryFilter(endpoint_id=endpoint.endpoint_id), None, 1
        )
    ).items
    assert f"/console/events/{delivery.delivery.event_id}#delivery-{delivery.delivery.delivery_id}" in shown.source


async def test_both_tabs_are_narrowed_by_state_type_and_code(scene: Scene, console: Console) -> None:
    endpoint = await both_ends(scene)
    for query, paid, refunded in (
        ("deliveries?state=delivered", True, False),
        ("deliveries?state=dead", False, True),
        ("deliveries?event_type=order.paid", True, False),
        ("deliveries?code=INVALID_FORMAT", False, True),
        ("deliveries?until=2020-01-01", False, False),
        ("attempts?state=succeeded", True, False),
        ("attempts?state=failed", False, True),
        ("attempts?event_type=order.refunded", False, True),
        ("attempts?code=TIMEOUT", False, False),
        ("attempts?since=2020-01-01", True, True),
    ):
        shown = await console.get(f"{page_of(endpoint)}/{query}")
        rows = shown.source.partition("<tbody>")[2]
        assert ("order.paid" in rows, "order.refunded" in rows) == (paid, refunded), query
        assert paid or refunded or "for this filter." in shown.text


async def test_a_filter_that_cannot_be_used_is_named(scene: Scene, console: Console, subtests: pytest.Subtests) -> None:
    endpoint = await scene.endpoint()
    for query in ("deliveries?state=lost", "attempts?state=lost", "deliveries?since=yesterday", "attempts?cursor=x"):
        with subtests.test(query=query):
            shown = await console.get(f"{page_of(endpoint)}/{query}")
            assert shown.status == 422
            assert query.partition("?")[2].partition("=")[0] in shown.text


async def test_an_endpoint_without_deliveries_says_so(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    for tab in ("deliveries", "attempts"):
        assert f"No {tab} yet." in (await console.get(f"{page_of(endpoint)}/{tab}")).text
