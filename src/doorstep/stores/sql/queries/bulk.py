"""Bulk operations. In one transaction, each step applies an action, records the retried deliveries and writes the
operation's progress."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import and_, bindparam, exists, false, insert, null, or_, select, text, update

from doorstep.model.action import Action, AuditEntry
from doorstep.model.bulk import (
    IN_FLIGHT_MAX,
    Bulk,
    BulkFailures,
    BulkFilter,
    BulkInFlight,
    BulkKind,
    BulkResults,
    BulkStep,
    InFlightRetry,
    LiveBulks,
    retry_succeeded,
)
from doorstep.model.claim import Moved
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Count, Page
from doorstep.stores.limits import KEY_MAX, read_cursor, write_cursor
from doorstep.stores.sql.queries.accounts import write_entry
from doorstep.stores.sql.queries.actions import act
from doorstep.stores.sql.queries.paging import ORG, count_up_to, index_scan, page_of, read_slice
from doorstep.stores.sql.queries.rows import DELIVERY, IN_ORG, delivery_from, org_key
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    UIDS,
    Transaction,
    execute,
    execute_in_parts,
    execute_one,
    new_parameters,
    new_values,
)
from doorstep.stores.sql.schema import bulk_items, bulks, deliveries, endpoints, orgs

_decode = msgspec.json.Decoder(Bulk).decode

_ADD = insert(bulks)
_NAMED = bulks.c.uid == bindparam("bulk")
_ONE = select(bulks.c.document).join(orgs, orgs.c.id == bulks.c.org_id).where(IN_ORG, _NAMED)
_KEY = select(bulks.c.id).where(_NAMED)
_PAGE = index_scan((bulks.c.org_id == ORG,), (bulks.c.id,), select(bulks.c.document), newest_first=True)
_LIVE = select(bulks.c.document).where(text("live")).order_by(bulks.c.id)  # exactly the condition of the partial index
_NEXT_VERSION = (
    update(bulks)
    .where(_NAMED, bulks.c.version == bindparam("expected"))
    .values(version=bulks.c.version + 1)
    .returning(bulks.c.id, bulks.c.org_id)
)
_WRITE = update(bulks).where(bulks.c.id == bindparam("key")).values(new_parameters(("live", "document", "finished_at")))


def add_bulk(bulk: Bulk) -> Transaction[bool]:
    """Returns False if the id exists. If two processes add the same id at the same time, the database rejects the
    second insert. That transaction is retried, finds the row of the first and returns False."""
    org = yield from org_key(bulk.org_id)
    if (yield execute(_KEY, bulk=bulk.bulk_id)):
        return False
    yield execute(_ADD, uid=bulk.bulk_id, org_id=org, version=bulk.version, **_columns(bulk))
    return True


def bulk(org_id: UUID, bulk_id: UUID) -> Transaction[Bulk]:
    row = yield from execute_one(f"no bulk operation {bulk_id}", _ONE, org=org_id, bulk=bulk_id)
    return _decode(row[0])


def list_bulks(org_id: UUID, _: BulkFilter, cursor: str | None, limit: int) -> Transaction[Page[Bulk]]:
    after = read_cursor(cursor, KEY_MAX) or (KEY_MAX,)
    found = yield from read_slice(_PAGE, after, (0,), limit, {"org": org_id}, filtered=False)
    return page_of(_PAGE, [found], limit, lambda row: _decode(row[0]))


def live_bulks(_: UUID | None, __: LiveBulks) -> Transaction[list[Bulk]]:
    return [_decode(row[0]) for row in (yield execute(_LIVE))]


def step_bulk(
    bulk: Bulk, expected_version: int, action: Action | None, entry: AuditEntry | None
) -> Transaction[BulkStep | None]:
    rows = yield execute(_NEXT_VERSION, bulk=bulk.bulk_id, expected=expected_version)
    if not rows:
        return None
    key, org = rows[0]
    succeeded, failed = yield from _collect(key)
    taken, refused, moved = 0, 0, Moved()
    if action is not None:
        result, moved = yield from act(action)
        taken, refused = len(result.done), len(result.refused)
        if bulk.kind is BulkKind.RETRY:
            taken = len((yield from execute_in_parts(_RECORD, "uids", result.done, bulk=key, org=org)))
    written = bulk.after(taken=taken, refused=refused, succeeded=succeeded, failed=failed, version=expected_version + 1)
    yield execute(_WRITE, key=key, **new_values(_columns(written)))
    if entry is not None:
        yield from write_entry(org, entry)
    return BulkStep(written, moved)


def _columns(bulk: Bulk) -> dict[str, object]:
    return {"live": bulk.live, "document": msgspec.json.encode(bulk).decode(), "finished_at": bulk.finished_at}


# -- results of retries ------------------------------------------------------------------------------------

_STILL_TRYING = or_(
    deliveries.c.state == DeliveryState.IN_PROGRESS.value,
    and_(deliveries.c.state == DeliveryState.PENDING.value, deliveries.c.attempt == bulk_items.c.attempt),
)
"""The SQL condition under which `retry_succeeded` returns None. A query that excludes these rows need not read the
retries that are still in flight (up to a thousand)."""
_ENDED = (
    select(bulk_items.c.delivery_id, deliveries.c.state, deliveries.c.attempt, bulk_items.c.attempt)
    .outerjoin(deliveries, deliveries.c.id == bulk_items.c.delivery_id)
    .where(
        bulk_items.c.bulk_id == bindparam("key"),
        bulk_items.c.succeeded.is_(null()),
        or_(deliveries.c.id.is_(null()), ~_STILL_TRYING),
    )
    .order_by(bulk_items.c.delivery_id)
    .limit(LIMIT)
)
_IN_FLIGHT = (
    select(deliveries.c.uid, endpoints.c.uid, deliveries.c.state)
    .select_from(bulk_items)
    .join(bulks, bulks.c.id == bulk_items.c.bulk_id)
    .join(orgs, orgs.c.id == bulks.c.org_id)
    .join(deliveries, deliveries.c.id == bulk_items.c.delivery_id)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(IN_ORG, _NAMED, bulk_items.c.succeeded.is_(null()), _STILL_TRYING)
    .limit(LIMIT)
)
_MARK_ENDED = (
    update(bulk_items)
    .where(bulk_items.c.bulk_id == bindparam("key"), bulk_items.c.delivery_id.in_(KEYS))
    .values(succeeded=bindparam("new_succeeded"))
)
_BULK = bindparam("bulk", type_=bulk_items.c.bulk_id.type)
_UNRECORDED = select(_BULK, deliveries.c.id, deliveries.c.org_id, deliveries.c.attempt).where(
    deliveries.c.org_id == bindparam("org"),
    deliveries.c.uid.in_(UIDS),
    ~exists().where(bulk_items.c.bulk_id == _BULK, bulk_items.c.delivery_id == deliveries.c.id),
)
_RECORD = (
    insert(bulk_items)
    .from_select(["bulk_id", "delivery_id", "org_id", "attempt"], _UNRECORDED)
    .returning(bulk_items.c.delivery_id)
)
"""Records the retried deliveries, and returns those that this operation had not retried before."""


def _collect(key: int) -> Transaction[tuple[int, int]]:
    """Mark the items whose retry has ended. Returns how many succeeded and how many failed."""
    rows = yield execute(_ENDED, key=key, limit=IN_FLIGHT_MAX)
    ended: dict[bool, list[int]] = {True: [], False: []}
    for delivery, state, attempt, attempt_before in rows:
        succeeded = retry_succeeded(None if state is None else DeliveryState(state), attempt, attempt_before)
        assert succeeded is not None, "the query and retry_succeeded disagree about which retries have ended"
        ended[succeeded].append(delivery)
    for succeeded, items in ended.items():
        yield from execute_in_parts(_MARK_ENDED, "keys", items, key=key, new_succeeded=succeeded)
    return len(ended[True]), len(ended[False])


def count_results(org_id: UUID, query: BulkResults, limit: int) -> Transaction[Count]:
    yield from bulk(org_id, query.bulk_id)
    ((key,),) = yield execute(_KEY, bulk=query.bulk_id)
    return count_up_to(limit, len((yield execute(_ENDED, key=key, limit=limit + 1))))


def in_flight_of(org_id: UUID, query: BulkInFlight) -> Transaction[list[InFlightRetry]]:
    yield from bulk(org_id, query.bulk_id)
    rows = yield execute(_IN_FLIGHT, org=org_id, bulk=query.bulk_id, limit=IN_FLIGHT_MAX)
    return [InFlightRetry(delivery, endpoint, state == DeliveryState.PENDING) for delivery, endpoint, state in rows]


_FAILED = (
    select(bulk_items.c.delivery_id)
    .join(bulks, bulks.c.id == bulk_items.c.bulk_id)
    .join(orgs, orgs.c.id == bulks.c.org_id)
    .where(
        IN_ORG,
        _NAMED,
        bulk_items.c.succeeded == false(),
        bulk_items.c.delivery_id > bindparam("after"),
    )
    .order_by(bulk_items.c.delivery_id)
    .limit(LIMIT)
)
_DELIVERIES = DELIVERY.where(deliveries.c.id.in_(KEYS)).order_by(deliveries.c.id)


def failures_of(org_id: UUID, query: BulkFailures, cursor: str | None, limit: int) -> Transaction[Page[Delivery]]:
    (after,) = read_cursor(cursor, KEY_MAX) or (0,)
    yield from bulk(org_id, query.bulk_id)
    rows = yield execute(_FAILED, org=org_id, bulk=query.bulk_id, after=after, limit=limit + 1)
    keys = [row[0] for row in rows]
    if not keys:
        return Page(())
    rows = yield execute(_DELIVERIES, keys=keys[:limit])
    return Page(tuple(map(delivery_from, rows)), write_cursor(keys[limit - 1]) if len(keys) > limit else None)
