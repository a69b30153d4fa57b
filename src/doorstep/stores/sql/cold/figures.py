"""Figures: what the deliveries of events add up to, for many events at once."""

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
_FIGURES = (
    select(
        _D.event_id,
        func.max(_D.retry_attempts),
        func.max(case((_D.attempt > 1, _D.last_attempt_at))),
        func.min(case((and_(_D.state == DeliveryState.PENDING.value, _D.attempt > 0), _D.due_at))),
    )
    .where(_D.event_id.in_(bindparam("keys", expanding=True)))
    .group_by(_D.event_id)
)


class Figures(NamedTuple):
    """Of an event without deliveries they are the defaults."""

    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    next_retry_at: Instant | None = None


def figures_of(event_keys: Sequence[int]) -> Script[dict[int, Figures]]:
    """The figures of each event, by its key."""
    figures = dict.fromkeys(event_keys, Figures())
    for part in parts(event_keys):
        figures |= {row[0]: Figures(*row[1:]) for row in (yield ask(_FIGURES, keys=part))}
    return figures
