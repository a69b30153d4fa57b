"""Keeping house: what expired ends, and old dead letters are archived, in small batches."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, literal_column, select, text

from doorstep.clock import Instant
from doorstep.model.delivery import DeliveryState
from doorstep.model.move import Moved
from doorstep.stores import notes
from doorstep.stores.sql.cold.lines import turns_of
from doorstep.stores.sql.cold.moves import MOVED, MOVER, Effect, Mover, move, parts
from doorstep.stores.sql.cold.operators import bury_all
from doorstep.stores.sql.cold.script import Script, ask, ask_postgres
from doorstep.stores.sql.schema import EXPIRING, deliveries, events

_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)
_D = deliveries.c

# -- archiving ---------------------------------------------------------------------------------------------

_ARCHIVE = Effect(MOVED.values(state=DeliveryState.ARCHIVED.value), DeliveryState.ARCHIVED)
_ARCHIVABLE = (
    MOVER.where(
        # The words of UNTOUCHED: parameters would keep its partial index from being used.
        _D.state == literal_column("'dead'"),
        _D.deleted_at.is_(None),
        _D.org_id > literal_column("0"),
        _D.settled_at < bindparam("before"),
    )
    .order_by(_D.settled_at, _D.id)
    .limit(bindparam("most"))
    .with_for_update(of=deliveries, skip_locked=True)
)


def archive(dead_before: Instant, now: Instant, limit: int) -> Script[Moved]:
    """Events need no new status: dead and archived count alike."""
    rows = yield ask(_ARCHIVABLE, before=dead_before, most=limit)
    movers = [Mover.of(row) for row in rows]
    yield from move(movers, _ARCHIVE, now, notes.ARCHIVED)
    return Moved(tuple(mover.to(DeliveryState.ARCHIVED) for mover in movers))


# -- expiring ----------------------------------------------------------------------------------------------

_WAITS = select(_D.id).where(_D.event_id == events.c.id, _D.state == literal_column("'pending'")).exists()
_EXPIRED = (
    select(events.c.id)
    .where(
        text(EXPIRING),
        events.c.expires_at > bindparam("since"),
        events.c.expires_at <= bindparam("now"),
        events.c.open_count > 0,  # spares a look at the deliveries of all that are settled
        _WAITS,
    )
    .order_by(events.c.expires_at, events.c.id)
    .limit(bindparam("most"))
)
_WAITING = MOVER.where(_D.event_id.in_(_KEYS), _D.state == literal_column("'pending'"))
_THEIR_TURNS = turns_of(select(deliveries).where(_D.event_id.in_(_KEYS)))
"""Of all their deliveries: one that is in progress now may wait again by the time the waiting ones are locked."""
_LOCK_WAITING = _WAITING.order_by(_D.id).with_for_update(of=deliveries)


def expired_events(since: Instant, now: Instant, limit: int) -> Script[list[int]]:
    rows = yield ask(_EXPIRED, since=since, now=now, most=limit)
    return [row[0] for row in rows]


def expire(event_keys: Sequence[int], code: str, reason: str, now: Instant) -> Script[Moved]:
    """An event's expiry never changes, so what was found may be acted on later; only the states are read again."""
    movers: list[Mover] = []
    yield ask_postgres(_THEIR_TURNS, keys=event_keys)
    for part in parts(event_keys):
        movers += [Mover.of(row) for row in (yield ask(_LOCK_WAITING, keys=part))]
    return (yield from bury_all(movers, code, reason, now))
