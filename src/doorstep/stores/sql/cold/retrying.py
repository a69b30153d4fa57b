"""How far the retries of events have come, for many events at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, bindparam, case, func, select

from doorstep.clock import Instant
from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql.cold.moves import parts
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import deliveries

_D = deliveries.c
_RETRYING = (
    select(
        _D.event_id,
        func.max(_D.retry_attempts),
        func.max(case((_D.attempt > 1, _D.last_attempt_at))),
        func.min(case((and_(_D.state == DeliveryState.PENDING.value, _D.attempt > 0), _D.due_at))),
    )
    .where(_D.event_id.in_(bindparam("keys", expanding=True)))
    .group_by(_D.event_id)
)


class Retrying(NamedTuple):
    """What the deliveries of an event add up to; without any it is the default."""

    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    next_retry_at: Instant | None = None


def retrying_of(event_keys: Sequence[int]) -> Script[dict[int, Retrying]]:
    """Of each event, by its key."""
    found = dict.fromkeys(event_keys, Retrying())
    for part in parts(event_keys):
        found |= {row[0]: Retrying(*row[1:]) for row in (yield ask(_RETRYING, keys=part))}
    return found
