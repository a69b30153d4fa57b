"""Nothing is selected by leaving something out."""

from __future__ import annotations

import pytest

from doorstep.cli.bulk_actions import Which
from doorstep.errors import ConfigError


def test_ids_filters_and_everything_are_said_explicitly() -> None:
    assert Which(["a", "b"], False).selection({}).body == {"delivery_ids": ["a", "b"]}
    filters = {"event_type": "order.*", "cause": None}
    assert Which([], False).selection(filters).body == {"filter": {"event_type": "order.*"}}
    assert Which([], True).selection({}).body == {"all": True}


@pytest.mark.parametrize(
    ("which", "filters"),
    [
        (Which(), {}),
        (Which(), {"event_type": None}),
        (Which(["a"]), {"event_type": "x"}),
        (Which(["a"], everything=True), {}),
        (Which(everything=True), {"event_type": "x"}),
    ],
)
def test_emptiness_and_contradiction_are_refused_with_the_explicit_forms(
    which: Which, filters: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="--all"):
        which.selection(filters)


def test_more_ids_than_one_request_takes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 1000"):
        Which([str(n) for n in range(1_001)]).selection({})
