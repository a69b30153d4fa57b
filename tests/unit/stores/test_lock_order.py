"""Transactions lock the routing version before an organization's row; otherwise two of them could deadlock on
PostgreSQL.
"""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.stores.sql.queries import accounts, alerts
from doorstep.stores.sql.queries.accounts import _ADD_ENTRY
from doorstep.stores.sql.queries.documents import write
from doorstep.stores.sql.queries.rows import ORG_KEY
from doorstep.stores.sql.queries.transaction import Transaction
from doorstep.stores.store import Put
from tests.support.builders import an_endpoint, an_org

ORG, ENDPOINT = an_org(), an_endpoint(OPERATIONS_ORG)
CHANNEL = Channel(
    channel_id=ENDPOINT.endpoint_id, org_id=ORG.org_id, name="ops", means=ChannelKind.SLACK, shown="https://…"
)
LINE = AuditEntry(at=1, org_id=ORG.org_id, actor="ops", action="x", subjects=(), result="ok")
LOCKS = {
    accounts._NUMBER_CHANGE: "mark",
    accounts._MARK_ORG: "organization",
    accounts._REPLACE_ORG: "organization",
    alerts._LOCK_ORG: "organization",
}


def locks_of(script: Transaction[Any]) -> list[str]:
    """The locks in the order in which they are taken, if every organization exists and nothing else does."""
    taken: list[str] = []
    rows: list[tuple[int, ...]] | None = None
    while True:
        try:
            step = script.send(rows)  # type: ignore[arg-type]
        except StopIteration:
            return taken
        taken += [LOCKS[step.statement]] if step.statement in LOCKS else []
        rows = [(1,)] if step.statement in (ORG_KEY, _ADD_ENTRY, accounts._NUMBER_CHANGE) else []


PUT_ENDPOINT, PUT_CHANNEL = (
    Put(document=ENDPOINT, expected_version=0),
    Put(document=CHANNEL, expected_version=0, limit=10),
)


@pytest.mark.parametrize(
    "changes", [[Put(document=ORG)], [PUT_ENDPOINT, PUT_CHANNEL], [PUT_CHANNEL, PUT_ENDPOINT]], ids=len
)
def test_the_mark_of_the_routing_is_locked_before_the_organization(changes: list[Put]) -> None:
    mark, *others = locks_of(write(changes, LINE))
    assert mark == "mark" and set(others) == {"organization"}
