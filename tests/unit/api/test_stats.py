"""The response shapes for statistics need no figures other than those that the query reads."""

from __future__ import annotations

from doorstep.api.stats import health_shown
from doorstep.model.endpoint import Circuit
from doorstep.model.rollup import FIGURES, Figures, only
from doorstep.operations.stats import HEALTH, LEVELS, Health
from tests.support.builders import an_endpoint, new_id

EVERY = Figures(*range(1, len(FIGURES) + 1))


def test_the_health_of_an_endpoint_needs_no_other_figures_than_those_that_are_read() -> None:
    endpoint = an_endpoint(new_id())
    circuit = Circuit(endpoint_id=endpoint.endpoint_id)
    chosen = Health(endpoint, only(HEALTH, EVERY), only(LEVELS, EVERY), circuit, None)
    assert health_shown(chosen) == health_shown(Health(endpoint, EVERY, EVERY, circuit, None))
