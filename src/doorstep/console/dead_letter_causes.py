"""Causes of dead letters, with what a screen says about each: whose it is, when letters died of it, and an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from doorstep.console.request import PageRequest
from doorstep.model.delivery import Delivery
from doorstep.model.listing import CauseGroup, DeadLetterFilter
from doorstep.model.rollup import HOUR

HOURS = 24
_CHOICES_MAX = 25


class Cause(NamedTuple):
    group: CauseGroup
    endpoint_name: str
    deaths: tuple[int, ...]
    """Hour by hour over the last day; of a crowded hour only so many as the store counts."""
    example: Delivery | None
    """The newest letter; None if it is gone by now."""

    @property
    def key(self) -> str:
        """As filters name it."""
        return f"{self.group.cause:016x}"

    @property
    def deaths_in_words(self) -> str:
        return f"{sum(self.deaths)} died in the last {HOURS} hours, {self.deaths[-1]} of them in this one"


async def described_causes(visit: PageRequest, groups: Sequence[CauseGroup]) -> list[Cause]:
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, (one.endpoint_id for one in groups))
    since = visit.now // HOUR * HOUR - (HOURS - 1) * HOUR
    deaths = await visit.doorstep.components.store.deaths_by_hour(
        visit.org_id, [one.cause for one in groups], since, HOURS
    )
    newest = await visit.doorstep.components.store.these_deliveries(visit.org_id, [one.sample_id for one in groups])
    examples = {one.delivery_id: one for one in newest}
    return [Cause(one, names[one.endpoint_id], deaths[one.cause], examples.get(one.sample_id)) for one in groups]


async def cause_choices(visit: PageRequest, wanted: DeadLetterFilter) -> list[tuple[str, str]]:
    """Causes to filter by, of everything that is dead (or archived); of very many only some, and the chosen one."""
    everything = DeadLetterFilter(archived=wanted.archived)
    page = await visit.doorstep.components.reader.cause_groups(visit.org_id, everything, None, _CHOICES_MAX)
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, (one.endpoint_id for one in page.items))
    found = {f"{one.cause:016x}": f"{names[one.endpoint_id]}: {one.code or one.reason}" for one in page.items}
    if wanted.cause is not None:
        key = f"{wanted.cause:016x}"
        found.setdefault(key, f"cause {key}")
    return sorted(found.items(), key=lambda one: one[1].casefold())
