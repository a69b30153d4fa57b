"""Dead letters by cause: from cause to cause over an index, one seek each, however many letters have died of it.

First the causes of a page are chosen, then only their letters are counted, and no further than all of them together
may cost. Pages follow the numbers of the causes, an order that no death and no retry changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import CTE, BigInteger, ColumnElement, ScalarSelect, Select, bindparam, func, literal, null, select

from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import CauseGroup, Count, Letters, Page
from doorstep.stores import cursor as cursors
from doorstep.stores.bounds import COUNT_MAX, GROUP_DEPTH, GROUPS_COUNTED_MAX, GROUPS_TYPED_MAX
from doorstep.stores.sql.cold.listing.filters import Columns, of_type, values_of
from doorstep.stores.sql.cold.listing.letters import cause_of, dead_in, ranges_of
from doorstep.stores.sql.cold.listing.walking import Column, Condition, Statement, count_up_to
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.script import Row, Script, ask
from doorstep.stores.sql.schema import deliveries, endpoints, events

_HOPS_MIN = 250
"""Causes that a page is looked for in, at least: an endpoint's own may be few among many."""


def cause_groups(org_id: UUID, wanted: Letters, cursor: str | None, limit: int) -> Script[Page[CauseGroup]]:
    values, hops = _values(org_id, wanted, cursor), max(limit + 1, _HOPS_MIN)
    causes, end = yield from _causes(wanted, hops, values)
    chosen = sorted(causes)[:limit]
    onward = chosen[-1] if len(causes) > limit else end
    groups = yield from _groups_of(chosen, wanted, values | {"hops": hops})
    newest_first = sorted(groups.values(), key=lambda group: (group.last_died_at, group.cause), reverse=True)
    return Page(tuple(newest_first), None if onward is None else cursors.write(onward))


def _values(org_id: UUID, wanted: Letters, cursor: str | None) -> dict[str, object]:
    (after,) = cursors.read(cursor, cursors.KEY_MAX) or (-1,)
    filters = values_of(wanted.event_type, wanted.endpoint_id)
    cause = cause_of(wanted)
    if cause is None:
        return {"org": org_id, "after": after, "last": cursors.KEY_MAX, **filters}
    return {"org": org_id, "after": max(after, cause - 1), "last": cause, **filters}


def _causes(wanted: Letters, hops: int, values: dict[str, object]) -> Script[tuple[set[int], int | None]]:
    """The next causes that letters died of in the wanted time, and the last one looked at if there may be more."""
    causes: set[int] = set()
    ends: list[int] = []
    for where in ranges_of(wanted):
        rows = yield ask(_CAUSES[where.state], hops=hops, low=where.low, high=where.high, **values)
        everyones = wanted.endpoint_id is None
        causes |= {
            cause for cause, endpoint, asked in rows if endpoint is not None and (everyones or endpoint == asked)
        }
        if len(rows) == hops:
            ends.append(max(row[0] for row in rows))
    end = min(ends, default=None)
    return {cause for cause in causes if end is None or cause <= end}, end


def _groups_of(chosen: Sequence[int], wanted: Letters, values: dict[str, object]) -> Script[dict[int, CauseGroup]]:
    """What died of each cause; of one that is in two ranges the letters are taken together."""
    groups: dict[int, CauseGroup] = {}
    if not chosen:
        return groups
    typed = wanted.event_type is not None
    statements = _GROUPS_OF_TYPE if typed else _GROUPS
    most, together = (GROUP_DEPTH, GROUPS_TYPED_MAX) if typed else (COUNT_MAX, GROUPS_COUNTED_MAX)
    depth = min(most, together // len(chosen))
    for where in ranges_of(wanted):
        asked = values | {"low": where.low, "high": where.high, "depth": depth, "beyond": depth + 1, "causes": chosen}
        rows = [row for row in (yield ask(statements[where.state], **asked)) if row[1] is not None]
        newest = yield from _newest([row[1] for row in rows])
        for group in (_group(row, newest[row[1]], depth) for row in rows):
            groups[group.cause] = _together(groups.get(group.cause), group)
    return groups


def _together(one: CauseGroup | None, other: CauseGroup) -> CauseGroup:
    """The letters of one cause that the cleaner has archived, and those that it has not."""
    if one is None:
        return other
    total = one.count.value + other.count.value
    return replace(
        max(one, other, key=lambda group: group.last_died_at),
        count=Count(min(total, COUNT_MAX), exact=one.count.exact and other.count.exact and total <= COUNT_MAX),
        first_died_at=min(one.first_died_at, other.first_died_at),
    )


# -- from cause to cause -----------------------------------------------------------------------------------


def _hops(state: DeliveryState) -> CTE:
    """The next causes after `after` up to `last`, at most `hops` of them."""
    first = _next_cause(state, bindparam("after", type_=BigInteger()))
    hop = select(first.label("cause"), literal(1).label("n")).cte("hop", recursive=True)
    more = (hop.c.cause.is_not(None), hop.c.n < bindparam("hops"))
    return hop.union_all(select(_next_cause(state, hop.c.cause), hop.c.n + 1).where(*more))


def _next_cause(state: DeliveryState, after: Column) -> ScalarSelect[Any]:
    letter = deliveries.alias("next").c
    within = (*dead_in(state, letter), letter.cause > after, letter.cause <= bindparam("last", type_=BigInteger()))
    return select(letter.cause).where(*within).order_by(letter.cause).limit(1).scalar_subquery()


def _died_of(cause: Column, state: DeliveryState, letter: Columns) -> tuple[Condition, ...]:
    low, high = (bindparam(edge, type_=BigInteger()) for edge in ("low", "high"))
    return (*dead_in(state, letter), letter.cause == cause, letter.settled_at >= low, letter.settled_at < high)


def _causes_in(state: DeliveryState) -> Statement:
    """Each cause with its endpoint, NULL if nothing died of it in the wanted time, beside the wanted endpoint."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    endpoint = select(letter.endpoint_id).where(*within).order_by(letter.settled_at.desc()).limit(1)
    asked = select(endpoints.c.id).where(endpoints.c.uid == bindparam("endpoint")).scalar_subquery()
    return select(hop.c.cause, endpoint.scalar_subquery(), asked).where(hop.c.cause.is_not(None))


# -- what died of them -------------------------------------------------------------------------------------


def _groups(state: DeliveryState) -> Statement:
    """A line for each cause: its newest letter, when the oldest died, NULL, and how many there are up to `beyond`."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    newest = select(letter.id).where(*within).order_by(letter.settled_at.desc(), letter.uid.desc()).limit(1)
    oldest = select(letter.settled_at).where(*within).order_by(letter.settled_at).limit(1)
    columns = (newest.scalar_subquery(), oldest.scalar_subquery(), null(), _examined(hop, within, letter))
    return select(hop.c.cause, *columns).where(hop.c.cause.in_(_CHOSEN))


def _groups_of_type(state: DeliveryState) -> Statement:
    """The same for letters of one event type, among the newest `depth` of each cause; the third is how many."""
    hop = _hops(state)
    letter = deliveries.alias("letter").c
    within = _died_of(hop.c.cause, state, letter)
    order = (letter.settled_at.desc(), letter.uid.desc())
    seen = select(letter.id, letter.uid, letter.settled_at, letter.event_id).where(*within).order_by(*order)
    newest_ones = seen.limit(bindparam("depth")).correlate(hop).subquery("seen").c

    def among(column: ColumnElement[Any]) -> Select[Any]:
        joined = select(column).join(events, events.c.id == newest_ones.event_id)
        return joined.where(of_type(events.c.event_type))

    newest = among(newest_ones.id).order_by(newest_ones.settled_at.desc(), newest_ones.uid.desc()).limit(1)
    oldest, count = among(func.min(newest_ones.settled_at)), among(func.count(newest_ones.id))
    columns = (newest.scalar_subquery(), oldest.scalar_subquery(), count.scalar_subquery())
    return select(hop.c.cause, *columns, _examined(hop, within, letter)).where(hop.c.cause.in_(_CHOSEN))


def _examined(hop: CTE, within: Iterable[Condition], letter: Columns) -> ScalarSelect[int]:
    entries = select(letter.uid).where(*within).limit(bindparam("beyond")).correlate(hop).subquery()
    return select(func.count()).select_from(entries).scalar_subquery()


_CHOSEN = bindparam("causes", expanding=True, type_=BigInteger())
_STATES = (DeliveryState.DEAD, DeliveryState.ARCHIVED)
_CAUSES = {state: _causes_in(state) for state in _STATES}
_GROUPS = {state: _groups(state) for state in _STATES}
_GROUPS_OF_TYPE = {state: _groups_of_type(state) for state in _STATES}
_NEWEST = (
    select(deliveries.c.id, deliveries.c.uid, deliveries.c.settled_at, endpoints.c.uid)
    .add_columns(deliveries.c.code, deliveries.c.reason)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(deliveries.c.id.in_(bindparam("keys", expanding=True)))
)


def _newest(keys: Sequence[int]) -> Script[dict[int, Row]]:
    """The letters that their groups are described by."""
    rows: dict[int, Row] = {}
    for part in parts(keys):
        rows |= {row[0]: tuple(row) for row in (yield ask(_NEWEST, keys=part))}
    return rows


def _group(row: Row, newest: Row, depth: int) -> CauseGroup:
    cause, _, first_died_at, matched, examined = row
    _, delivery_id, last_died_at, endpoint_id, code, reason = newest
    return CauseGroup(
        cause=cause,
        endpoint_id=endpoint_id,
        code=code or "",
        reason=reason or "",
        count=count_up_to(depth, examined, matched),
        first_died_at=first_died_at,
        last_died_at=last_died_at,
        sample_id=delivery_id,
    )
