"""The lists of deliveries and of attempts, newest first, with every filter on an index.

Each list has several scans, all in the same order, and reads those that suit its filter best: the organization's, the
endpoint's, or those of open, failing or undelivered deliveries. Two kinds of deliveries are so few that they are sorted
instead: those in progress, and those of a rare event type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Boolean, String, and_, bindparam, literal_column, or_, select

from doorstep.clock import Instant
from doorstep.model.attempt import AttemptSummary
from doorstep.model.delivery import OPEN_STATES, Delivery, DeliveryState
from doorstep.model.listing import AttemptFilter, DeliveryFilter, Page
from doorstep.model.record import earliest_id
from doorstep.stores.limits import ID_MAX, KEY_MAX, RARE_MAX, check_storable, read_cursor
from doorstep.stores.sql.queries.paging import (
    ORG,
    Column,
    Condition,
    IndexScan,
    Position,
    Slice,
    has_endpoint,
    has_type,
    index_scan,
    page_of,
    read_slice,
    unindexed,
    values_of,
)
from doorstep.stores.sql.queries.rows import (
    ATTEMPT_SUMMARY,
    ATTEMPT_SUMMARY_OF_DELIVERIES,
    DELIVERY,
    attempt_summary_from,
    delivery_from,
)
from doorstep.stores.sql.queries.transaction import KEYS, Transaction, execute
from doorstep.stores.sql.schema import INSTANT, UID, attempts, deliveries, endpoints, events

_D, _A, _E = deliveries.c, attempts.c, events.c
_CODE = bindparam("code", type_=String())

_TYPE = bindparam("type_name", type_=String())
_OF_TYPE = (
    select(_E.id)
    .where(_E.org_id == ORG, _E.event_type >= _TYPE, _E.event_type <= _TYPE, _E.org_id > literal_column("0"))
    .order_by(_E.event_type)
    .limit(RARE_MAX + 1)
)
"""The comparisons and the order mean equality. They keep PostgreSQL, which may believe that the type is common, from
looking for it in the index of all events."""

_ENDPOINT_KEY = (
    select(endpoints.c.id)
    .where(endpoints.c.uid == bindparam("endpoint", type_=UID), endpoints.c.org_id == ORG)
    .correlate(None)
    .scalar_subquery()
)
"""The key of the organization's endpoint. The scans of an endpoint do not mention the organization otherwise: the
databases would then prefer the organization's index and read the entries of all endpoints."""


def _events_of_rare_type(org_id: UUID, event_type: str | None) -> Transaction[list[int] | None]:
    """The keys of the events of a type, if there are at most RARE_MAX. None for a common type, which a scan finds soon,
    and for a prefix."""
    if event_type is None or event_type.endswith("*"):
        return None
    check_storable("event_type", event_type)
    rows = yield execute(_OF_TYPE, org=org_id, type_name=event_type)
    return [row[0] for row in rows] if len(rows) <= RARE_MAX else None


# -- deliveries --------------------------------------------------------------------------------------------

_FIRST, _LAST = UUID(int=0), UUID(int=ID_MAX)
_STATE = bindparam("state", type_=String())
_FROM, _BEFORE = bindparam("settled_from", type_=INSTANT), bindparam("settled_before", type_=INSTANT)
_LISTED = _D.deleted_at.is_(None)
_OF_SOME_ORG = _D.org_id > literal_column("0")
_INDEXED = and_(_OF_SOME_ORG, _D.endpoint_id > literal_column("0"))
"""Both are always true, but the partial indexes of this list can be used only by queries that say so; see partial_index."""
_MATCHES = (
    or_(_STATE.is_(None), _D.state == _STATE),
    or_(_FROM.is_(None), _D.settled_at >= _FROM),
    or_(_BEFORE.is_(None), _D.settled_at < _BEFORE),
    has_type(unindexed(_E.event_type)),
)


def _deliveries(*within: Condition, position: Sequence[Column] = (_D.uid,)) -> IndexScan:
    return index_scan(within, position, DELIVERY, _MATCHES, newest_first=True)


def _settled(*within: Condition) -> IndexScan:
    """The deliveries in one settled state. The state is part of the position, because PostgreSQL would otherwise choose
    the index of all deliveries if it believed that most of them are in this state."""
    return _deliveries(*within, _D.settled_at.is_not(None), _LISTED, position=(_D.state, _D.uid))


def _by_endpoint(*within: Condition) -> dict[bool, IndexScan]:
    """Two scans of an index of the organization: of all its entries, or of those of one endpoint. The others are still
    read, but only in the index: 100,000 entries in 10 ms."""
    all_of = (_D.org_id == ORG, _INDEXED, *within)
    return {False: _deliveries(*all_of), True: _deliveries(*all_of, _D.endpoint_id == _ENDPOINT_KEY)}


def _few_deliveries(*within: Condition) -> IndexScan:
    matching = (*_MATCHES, or_(_CODE.is_(None), _D.code == _CODE), has_endpoint(_D))
    return index_scan((*within, _LISTED), (unindexed(_D.uid),), DELIVERY, matching, newest_first=True)


_ALL = _deliveries(_D.org_id == ORG, _LISTED)
_OPEN = tuple(
    _by_endpoint(_D.settled_at.is_(None), first_failed)
    for first_failed in (_D.first_failed_at.is_(None), _D.first_failed_at.is_not(None))
)
"""Open deliveries that have not failed yet, and the others: each kind has its own index. Only settled deliveries can be
deleted; a condition that says so made SQLite sort the entries instead of reading them in order."""
_SETTLED = {
    False: _settled(_D.org_id == ORG, _INDEXED),
    True: _settled(_D.endpoint_id == _ENDPOINT_KEY, _OF_SOME_ORG),
}
_FAILING = _by_endpoint(_D.code == _CODE, _LISTED)
_IN_PROGRESS = _few_deliveries(_D.state == literal_column("'in_progress'"), unindexed(_D.org_id) == ORG)
_OF_EVENTS = _few_deliveries(_D.event_id.in_(KEYS))


class _InState(NamedTuple):
    """A state as the database knows it, and the times of settlement to which it is limited."""

    state: DeliveryState | None = None
    settled_from: Instant | None = None
    settled_before: Instant | None = None


def list_deliveries(org_id: UUID, query: DeliveryFilter, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    check_storable("code", query.code)
    position = read_cursor(cursor, ID_MAX)
    begin = _LAST if query.created_before is None else earliest_id(query.created_before)
    after = (begin if position is None else min(begin, UUID(int=position[0])),)
    until = (_FIRST if query.created_from is None else earliest_id(query.created_from),)
    values = {"org": org_id, "code": query.code, **values_of(query.event_type, query.endpoint_id)}
    keys = yield from _events_of_rare_type(org_id, query.event_type)
    filtered = keys is None and (query.event_type, query.state, query.code) != (None, None, None)
    found: list[Slice] = []
    for scan, one in _scans_of(query, keys):
        asked = {**values, **one._asdict(), "keys": keys}
        state = (one.state,) * (scan.width - 1)
        rows, end = yield from read_slice(scan, state + after, state + until, limit, asked, filtered=filtered)
        found.append(Slice(rows, end and end[-1:]))
    return page_of(_ALL, found, limit, delivery_from)


def _scans_of(query: DeliveryFilter, event_keys: Sequence[int] | None) -> Iterator[tuple[IndexScan, _InState]]:
    """The scans that together contain all matching deliveries and as few others as possible."""
    of_endpoint, only_endpoint = query.endpoint_id is not None, (query.state, query.code) == (None, None)
    if event_keys is not None:
        yield from ((_OF_EVENTS, one) for one in _stored_states(query) if event_keys)
    elif of_endpoint and only_endpoint:
        yield from ((one[True], _InState()) for one in _OPEN)
        yield from ((_SETTLED[True], _InState(state)) for state in DeliveryState if state not in OPEN_STATES)
    else:
        for one in _stored_states(query):
            yield from ((scan, one) for scan in _scans_in(one.state, query.code, of_endpoint))


def _scans_in(state: DeliveryState | None, code: str | None, of_endpoint: bool) -> tuple[IndexScan, ...]:
    if state is DeliveryState.IN_PROGRESS:
        return (_IN_PROGRESS,)
    if code is not None:
        return (_FAILING[of_endpoint],)
    if state is DeliveryState.PENDING:
        return tuple(one[of_endpoint] for one in _OPEN)
    return (_ALL if state is None else _SETTLED[of_endpoint],)


def _stored_states(query: DeliveryFilter) -> Sequence[_InState]:
    """Archived dead letters are in two ranges; see queries/dead_letters.py."""
    match query.state:
        case DeliveryState.DEAD:
            return (_InState(DeliveryState.DEAD, settled_from=query.archived_before),)
        case DeliveryState.ARCHIVED:
            old = _InState(DeliveryState.DEAD, settled_before=query.archived_before)
            return _InState(DeliveryState.ARCHIVED), old
    return (_InState(query.state),)


# -- attempts ----------------------------------------------------------------------------------------------

_POSITION_MAX = (KEY_MAX, KEY_MAX, *(2**31 - 1,) * 3)
_SUCCEEDED = bindparam("succeeded", type_=Boolean())
_ENDED = (or_(_SUCCEEDED.is_(None), _A.category.is_(None) == _SUCCEEDED), has_type(unindexed(_E.event_type)))


def _attempts(*within: Condition) -> IndexScan:
    position = (_A.started_at, _A.delivery_id, _A.number, _A.move, _A.late)
    return index_scan(within, position, ATTEMPT_SUMMARY, _ENDED, newest_first=True)


def _failed_attempts(of_endpoint: bool, with_code: bool) -> IndexScan:
    """A scan of failed attempts that skips other endpoints and other codes in the index."""
    more = [_A.endpoint_id == _ENDPOINT_KEY] * of_endpoint + [_A.code == _CODE] * with_code
    return _attempts(_A.org_id == ORG, _A.category.is_not(None), *more)


_ATTEMPTS = _attempts(_A.org_id == ORG, _A.number > literal_column("0"))
_ATTEMPTS_OF_ENDPOINT = _attempts(_A.endpoint_id == _ENDPOINT_KEY)
_FAILED_ATTEMPTS = {(one, other): _failed_attempts(one, other) for one in (False, True) for other in (False, True)}
_ATTEMPTS_OF_EVENTS = index_scan(
    (_A.delivery_id.in_(select(_D.id).where(_D.event_id.in_(KEYS))),),
    (unindexed(_A.started_at), _A.delivery_id, _A.number, _A.move, _A.late),
    ATTEMPT_SUMMARY_OF_DELIVERIES,
    (
        *_ENDED,
        or_(_CODE.is_(None), _A.code == _CODE),
        or_(bindparam("endpoint", type_=UID).is_(None), unindexed(_A.endpoint_id) == _ENDPOINT_KEY),
    ),
    newest_first=True,
)


def list_attempts(
    org_id: UUID, query: AttemptFilter, cursor: str | None, limit: int
) -> Transaction[Page[AttemptSummary]]:
    check_storable("code", query.code)
    begin = _place(KEY_MAX if query.started_before is None else query.started_before)
    after = min(begin, read_cursor(cursor, *_POSITION_MAX) or begin)
    until = _place(query.started_from or 0)
    values: dict[str, object] = {"org": org_id, "code": query.code, "succeeded": query.succeeded}
    values |= values_of(query.event_type, query.endpoint_id)
    keys = yield from _events_of_rare_type(org_id, query.event_type)
    if keys is None:
        found = yield from read_slice(_attempt_scan(query), after, until, limit, values)
    elif keys:
        values |= {"keys": keys}
        found = yield from read_slice(_ATTEMPTS_OF_EVENTS, after, until, limit, values, filtered=False)
    else:
        found = Slice((), None)
    return page_of(_ATTEMPTS, [found], limit, attempt_summary_from)


def _place(at: Instant) -> Position:
    """The position before all attempts that started at this time."""
    return max(at, 0), -1, -1, -1, -1


def _attempt_scan(query: AttemptFilter) -> IndexScan:
    if query.succeeded is False or query.code is not None:
        return _FAILED_ATTEMPTS[query.endpoint_id is not None, query.code is not None]
    return _ATTEMPTS if query.endpoint_id is None else _ATTEMPTS_OF_ENDPOINT
