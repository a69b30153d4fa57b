"""Whoever locks the mark of the routing and the row of an organization takes them in one order: two could else wait for
each other on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.stores.sql.queries import alerts, orgs
from doorstep.stores.sql.queries.alerts import put_channel
from doorstep.stores.sql.queries.audit import _ADD_LINE
from doorstep.stores.sql.queries.orgs import put_org
from doorstep.stores.sql.queries.transaction import Transaction
from tests.support.builders import an_endpoint, an_org

ORG, ENDPOINT = an_org(), an_endpoint(OPERATIONS_ORG)
CHANNEL = Channel(
    channel_id=ENDPOINT.endpoint_id, org_id=ORG.org_id, name="ops", means=ChannelKind.SLACK, shown="https://…"
)
LINE = AuditEntry(at=1, org_id=ORG.org_id, actor="ops", action="x", subjects=(), result="ok")
LOCKS = {orgs.BUMP_VERSION: "mark", orgs._REPLACE_ORG: "organization", alerts._LOCK_ORG: "organization"}


def locks_of(script: Transaction[Any]) -> list[str]:
    """In the order in which they are taken, where every organization is there and nothing else is."""
    taken: list[str] = []
    rows: list[tuple[int, ...]] | None = None
    while True:
        try:
            step = script.send(rows)  # type: ignore[arg-type]
        except StopIteration:
            return taken
        taken += [LOCKS[step.statement]] if step.statement in LOCKS else []
        rows = [(1,)] if step.statement in (orgs._ORG_KEY, _ADD_LINE) else []


@pytest.mark.parametrize("script", [put_org(ORG, LINE), put_channel(CHANNEL, ENDPOINT, LINE, 10)])
def test_the_mark_of_the_routing_is_locked_before_the_organization(script: Transaction[Any]) -> None:
    assert locks_of(script) == ["mark", "organization"]
