"""In which hours letters died of a cause: each hour is a short range of the index by cause, counted no further than all
of them together may cost."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import BigInteger, bindparam, func, literal, select

from doorstep.clock import Instant
from doorstep.model.delivery import DeliveryState
from doorstep.model.rollup import HOUR
from doorstep.stores.bounds import DEATHS_COUNTED_MAX
from doorstep.stores.sql.cold.listing.letters import dead_in
from doorstep.stores.sql.cold.listing.walking import Statement
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import deliveries


def deaths_by_hour(
    org_id: UUID, causes: Sequence[int], since: Instant, hours: int
) -> Script[dict[int, tuple[int, ...]]]:
    most = DEATHS_COUNTED_MAX // max(1, len(causes) * hours)
    found: dict[int, tuple[int, ...]] = {}
    for cause in causes:
        rows = yield ask(_HOURLY, org=org_id, cause=cause, since=since, hours=hours, most=most)
        found[cause] = tuple(row[1] for row in rows)
    return found


def _hourly() -> Statement:
    """A line for each hour: its number, and how many died in it, up to `most`."""
    first = select(literal(0, BigInteger()).label("number")).cte("hour", recursive=True)
    hour = first.union_all(
        select(first.c.number + 1).where(first.c.number + 1 < bindparam("hours", type_=BigInteger()))
    )
    begin = bindparam("since", type_=BigInteger()) + hour.c.number * literal(HOUR, BigInteger())
    letter = deliveries.alias("letter").c
    died = (letter.settled_at >= begin, letter.settled_at < begin + literal(HOUR, BigInteger()))
    within = (*dead_in(DeliveryState.DEAD, letter), letter.cause == bindparam("cause", type_=BigInteger()), *died)
    entries = select(letter.uid).where(*within).limit(bindparam("most")).correlate(hour).subquery()
    counted = select(func.count()).select_from(entries).scalar_subquery()
    return select(hour.c.number, counted).order_by(hour.c.number)


_HOURLY = _hourly()
