"""A worker claims no more than its transport has slots for; the rest stays available to other workers."""

from __future__ import annotations

import pytest

from doorstep.engine.directory import Tuning
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import HandlerDestination
from tests.support.transports import FakeTransport
from tests.unit.engine.scene import Bench


@pytest.mark.parametrize(("slots", "started"), [(2, 2), (None, 4)])
async def test_no_more_is_begun_for_a_handler_than_it_has_places_of_its_own(
    slots: int | None, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTransport, "slots", lambda self, target: slots)
    bench = Bench(Tuning(slots=8, connections_per_endpoint=4, settle_linger_seconds=0))
    (endpoint,) = await bench.prepare(destination=HandlerDestination("convert"))
    deliveries = await bench.accept(endpoint, 10)
    bench.handlers.open(bench.deliverer.done)
    await bench.deliverer.round()
    assert len(bench.handlers.unanswered) == started
    assert (await bench.states(deliveries)).count(DeliveryState.IN_PROGRESS) == started


async def test_a_worker_without_the_transport_of_a_kind_leaves_its_deliveries_to_others() -> None:
    bench = Bench()
    (endpoint,) = await bench.prepare(destination=HandlerDestination("convert"))
    deliveries = await bench.accept(endpoint, 2)
    bench.transports.pop("handler")
    await bench.deliverer.round()
    assert await bench.states(deliveries) == [DeliveryState.PENDING] * 2
