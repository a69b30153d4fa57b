"""A transport that can try only so many at once is not given more: the rest stays free for other workers."""

from __future__ import annotations

import pytest

from doorstep.engine.directory import Tuning
from doorstep.model.delivery import DeliveryState
from doorstep.testing import FakeTransport
from tests.unit.path.scene import Bench


@pytest.mark.parametrize(("places", "begun"), [(2, 2), (None, 4)])
async def test_no_more_is_begun_for_a_handler_than_it_has_places_of_its_own(
    places: int | None, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTransport, "places", lambda self, target: places)
    bench = Bench(Tuning(places=8, connections_per_endpoint=4, settle_linger_seconds=0))
    (endpoint,) = await bench.prepare(url=None, handler="convert")
    deliveries = await bench.accept(endpoint, 10)
    bench.handlers.open(bench.deliverer.done)
    await bench.deliverer.round()
    assert len(bench.handlers.unanswered) == begun
    assert (await bench.states(deliveries)).count(DeliveryState.IN_PROGRESS) == begun
