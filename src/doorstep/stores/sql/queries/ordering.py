"""Lines: the open deliveries of one endpoint that share an ordering key. Only the first of a line may be tried.

The rule is one: a delivery is blocked when it is accepted behind an open one, and unblocked when it is the first. So
whoever ends a delivery with an ordering key looks, last of all, who is the first of its line now.

SQLite has one writer. On PostgreSQL an accept and an end could miss each other, and the delivery would be blocked for
ever. So both take turns, by advisory locks: a turn is waited for before the statement that looks, and kept until the
commit. It is waited for before any row is locked, too, so that nobody who has a row waits for one who has a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, func, literal_column, select, update

from doorstep.clock import Instant
from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql.postgres_ddl import turn_of
from doorstep.stores.sql.queries.moves import Mover, parts
from doorstep.stores.sql.queries.transaction import Step, Transaction, execute, execute_each, execute_on_postgres
from doorstep.stores.sql.schema import NEVER, deliveries, events

_D = deliveries.c
_KEYS = bindparam("keys", expanding=True, type_=_D.id.type)


# -- turns -------------------------------------------------------------------------------------------------


def turns_of(chosen: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """A statement, for `ask_postgres`, that waits for the turns of all lines among the chosen deliveries.

    All in one go and in one order. An ordering key never changes, so they may be read before they are locked.
    """
    line = chosen.with_only_columns(_D.endpoint_id, _D.ordering_key).subquery("line")
    turn = literal_column(turn_of("line"), type_=BigInteger()).label("turn")
    turns = select(turn).select_from(line).where(line.c.ordering_key.is_not(None)).distinct().order_by(turn)
    return select(func.pg_advisory_xact_lock(turns.subquery("turns").c.turn))


_TURNS = turns_of(select(deliveries).where(_D.id.in_(_KEYS)))


def turns_to_end(keys: Sequence[int]) -> Step:
    """Wait for the turns of the lines that these deliveries stand in."""
    return execute_on_postgres(_TURNS, keys=keys)


# -- who is first ------------------------------------------------------------------------------------------

_ENDED, _OPEN = deliveries.alias("ended"), deliveries.alias("open")
_FIRST = (
    select(func.min(_OPEN.c.id))
    .where(
        _OPEN.c.endpoint_id == _ENDED.c.endpoint_id,
        _OPEN.c.ordering_key == _ENDED.c.ordering_key,
        _OPEN.c.due_at.is_not(None),
    )
    .scalar_subquery()
)
_FIRSTS = select(_FIRST).select_from(_ENDED).where(_ENDED.c.id.in_(_KEYS))
_BLOCKED = (
    select(_D.id, _D.forced, events.c.deliver_at)
    .join(events, events.c.id == _D.event_id)
    .where(_D.id.in_(_KEYS), _D.due_at == NEVER)
    .order_by(_D.id)
    .with_for_update(of=deliveries)
)
_UNBLOCK = update(deliveries).where(_D.id == bindparam("key")).values(due_at=bindparam("new_due_at"))


def unblock_after(movers: Iterable[Mover], now: Instant) -> Transaction[None]:
    """Let those go that waited for one of these, which waited and have been moved."""
    ended = (mover for mover in movers if mover.state is DeliveryState.PENDING and mover.ordering_key is not None)
    return (yield from unblock([mover.key for mover in ended], now))


def unblock(ended: Sequence[int], now: Instant) -> Transaction[None]:
    """Let the first of each line go in which one of these stood: now, but not before its own time, if it has one.

    The last thing to be done in a transaction, which must have waited for the turns of these.
    """
    firsts: set[int] = set()
    for part in parts(ended):
        firsts |= {row[0] for row in (yield execute(_FIRSTS, keys=part)) if row[0] is not None}
    for part in parts(sorted(firsts)):
        blocked = yield execute(_BLOCKED, keys=part)
        yield execute_each(_UNBLOCK, [{"key": key, "new_due_at": _due_at(now, *own)} for key, *own in blocked])


def _due_at(now: Instant, forced: bool, deliver_at: Instant | None) -> Instant:
    return now if forced or deliver_at is None else max(now, deliver_at)
