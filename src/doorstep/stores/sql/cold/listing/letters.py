"""Dead letters, the newest death first.

What is archived is in two parts of the index: letters that the cleaner has archived, and old ones that it has not
come by yet. Both are walked, and put together in the order of their deaths.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, literal_column, or_

from doorstep.clock import Instant
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Count, Letters, Page
from doorstep.stores import cursor as cursors
from doorstep.stores.sql.cold.listing.filters import (
    ENDPOINT_KEY,
    Columns,
    counted_by_endpoint,
    counted_matches,
    of_endpoint,
    of_type,
    values_of,
)
from doorstep.stores.sql.cold.listing.walking import (
    ORG,
    Condition,
    Statement,
    Stretch,
    Walk,
    count_up_to,
    counted_over,
    page_of,
    stretch,
    walk_over,
)
from doorstep.stores.sql.cold.rows import DELIVERY, delivery_from
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import INSTANT, deliveries, events

_D = deliveries.c
_NOBODY = UUID(int=0)


# -- what an index holds of them ---------------------------------------------------------------------------


class Range(NamedTuple):
    """Letters in one state that died from `low` on, before `high`."""

    state: DeliveryState
    low: Instant
    high: Instant


def ranges_of(wanted: Letters) -> list[Range]:
    """Where the wanted letters are to be found."""
    low = max(wanted.died_from or 0, 0)
    high = cursors.KEY_MAX if wanted.died_before is None else max(wanted.died_before, 0)
    if not wanted.archived:
        return [Range(DeliveryState.DEAD, max(low, wanted.archived_before), high)]
    old = Range(DeliveryState.DEAD, low, min(high, wanted.archived_before))
    return [Range(DeliveryState.ARCHIVED, low, high), old]


def cause_of(wanted: Letters) -> int | None:
    """The wanted cause, if there is one; -1, which is nobody's, for a number that no column holds."""
    return wanted.cause if wanted.cause is None or 0 <= wanted.cause <= cursors.KEY_MAX else -1


def dead_in(state: DeliveryState, letter: Columns = _D) -> tuple[Condition, ...]:
    """An organization's letters in one state, in the words of DEAD: a database uses a partial index only where it sees
    that its condition holds. With these the index by cause; the others need the words of DEAD_BY_TIME, of
    DEAD_BY_ENDPOINT."""
    dead, archived = (letter.state == literal_column(f"'{one}'") for one in ("dead", "archived"))
    this = dead if state is DeliveryState.DEAD else archived
    return letter.org_id == ORG, or_(dead, archived), letter.deleted_at.is_(None), this


# -- the list, and how long it is --------------------------------------------------------------------------

_STATES = (DeliveryState.DEAD, DeliveryState.ARCHIVED)
_OF_CAUSE = _D.cause == bindparam("cause")
_OF_ENDPOINT = (_D.endpoint_id > literal_column("0"), _D.endpoint_id == ENDPOINT_KEY)
_DIED = (_D.settled_at >= bindparam("low", type_=INSTANT), _D.settled_at < bindparam("high", type_=INSTANT))


class _Statements(NamedTuple):
    """About the letters in one state."""

    walk: Walk
    count_all: Statement
    count_wanted: Statement
    by_endpoint: Statement
    wanted_by_endpoint: Statement


def _statements(state: DeliveryState, *more: Condition) -> _Statements:
    within = (*dead_in(state), *more)
    wanted = (of_endpoint(_D), of_type(events.c.event_type))
    return _Statements(
        walk_over(within, (_D.settled_at, _D.uid), DELIVERY, wanted, newest_first=True),
        counted_over((*within, *_DIED), _D.uid),
        counted_matches((*within, *_DIED), of_endpoint),
        counted_by_endpoint((*within, *_DIED)),
        counted_by_endpoint((*within, *_DIED), of_endpoint),
    )


_ALL = {state: _statements(state, _D.due_at.is_(None)) for state in _STATES}
_OF_ONE_ENDPOINT = {state: _statements(state, *_OF_ENDPOINT) for state in _STATES}
_OF_ONE_CAUSE = {state: _statements(state, _OF_CAUSE) for state in _STATES}


def dead_letters(org_id: UUID, wanted: Letters, cursor: str | None, limit: int) -> Script[Page[Delivery]]:
    reached = cursors.read_instant(cursor)
    values, filtered, statements = _values(org_id, wanted), _is_filtered(wanted), _statements_for(wanted)
    found: list[Stretch] = []
    for state, low, high in ranges_of(wanted):
        begin, end = (high, _NOBODY), (low, _NOBODY)
        walk, after = statements[state].walk, min(begin, reached or begin)
        found.append((yield from stretch(walk, after, end, limit, values, filtered=filtered)))
    return page_of(statements[DeliveryState.DEAD].walk, found, limit, delivery_from)


def count_dead_letters(org_id: UUID, wanted: Letters, limit: int) -> Script[Count]:
    examined = matched = 0
    for state, low, high in ranges_of(wanted):
        about = _statements_for(wanted)[state]
        statement, most = about.count_wanted if _is_filtered(wanted) else about.count_all, limit + 1 - examined
        rows = yield ask(statement, low=low, high=high, most=most, **_values(org_id, wanted))
        examined += rows[0][0]
        matched += rows[0][-1]
    return count_up_to(limit, examined, matched)


def dead_letters_by_endpoint(org_id: UUID, wanted: Letters, limit: int) -> Script[dict[UUID, int]]:
    found: Counter[UUID] = Counter()
    for state, low, high in ranges_of(wanted):
        about = _statements_for(wanted)[state]
        statement = about.wanted_by_endpoint if _is_filtered(wanted) else about.by_endpoint
        found += Counter(dict((yield ask(statement, low=low, high=high, most=limit, **_values(org_id, wanted)))))
    return dict(found)


def _statements_for(wanted: Letters) -> dict[DeliveryState, _Statements]:
    if wanted.cause is not None:
        return _OF_ONE_CAUSE
    return _ALL if wanted.endpoint_id is None else _OF_ONE_ENDPOINT


def _is_filtered(wanted: Letters) -> bool:
    """Whether more is asked than the index knows. (A cause is one endpoint's; another one's letters are filtered out.)"""
    return wanted.event_type is not None or (wanted.endpoint_id is not None and wanted.cause is not None)


def _values(org_id: UUID, wanted: Letters) -> dict[str, object]:
    return {"org": org_id, "cause": cause_of(wanted), **values_of(wanted.event_type, wanted.endpoint_id)}
