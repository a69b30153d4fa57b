"""Bulk commands require an explicit selection: omitting the filters never selects everything."""

from __future__ import annotations

import pytest

from doorstep.cli.queues import SelectionOptions
from doorstep.errors import ConfigError


def test_ids_filters_and_everything_are_said_explicitly() -> None:
    assert SelectionOptions(["a", "b"], False).selection({}).body == {"delivery_ids": ["a", "b"]}
    filters = {"event_type": "order.*", "cause": None}
    assert SelectionOptions([], False).selection(filters).body == {"filter": {"event_type": "order.*"}}
    assert SelectionOptions([], True).selection({}).body == {"all": True}


@pytest.mark.parametrize(
    ("selected", "filters"),
    [
        (SelectionOptions(), {}),
        (SelectionOptions(), {"event_type": None}),
        (SelectionOptions(["a"]), {"event_type": "x"}),
        (SelectionOptions(["a"], everything=True), {}),
        (SelectionOptions(everything=True), {"event_type": "x"}),
    ],
)
def test_emptiness_and_contradiction_are_refused_with_the_explicit_forms(
    selected: SelectionOptions, filters: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="--all"):
        selected.selection(filters)


def test_more_ids_than_one_request_takes_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 1000"):
        SelectionOptions([str(n) for n in range(1_001)]).selection({})
