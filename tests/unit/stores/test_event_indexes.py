"""The indexes of events leave the columns alone that every delivered event changes."""

from __future__ import annotations

import re

from doorstep.stores.sql.schema import events

_CHANGED_BY_EVERY_EVENT = {"status", "open_count", "done_count", "dead_count"}
"""What claim and settle change on the way to success."""


def test_no_index_of_events_involves_a_column_that_every_delivery_changes() -> None:
    """If one did, even in its condition, PostgreSQL would update every index of the event at each change (no HOT)."""
    involved = {
        str(index.name): set(re.findall(r"\w+", f"{index.expressions} {index.dialect_options['postgresql']['where']}"))
        for index in events.indexes
    }
    assert involved, "there are indexes"
    assert {name for name, words in involved.items() if words & _CHANGED_BY_EVERY_EVENT} == set()
