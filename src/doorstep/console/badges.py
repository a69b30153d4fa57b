"""The counts in the menu: dead letters, the retry queue and open alerts. Each is bounded, and costs one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from doorstep.console.formatting import amount
from doorstep.errors import NotOffered
from doorstep.model.alert import AlertFilter
from doorstep.model.listing import RetryQueueFilter

if TYPE_CHECKING:
    from doorstep.components import Components

_SHOWN_MAX = 999
_ALERTS_MAX = 50


async def badges_of(components: Components, org_id: UUID) -> Mapping[str, str]:
    """The badge of each screen in the menu, by the screen's path. A screen without items has an empty badge."""
    retrying, dead, alerts = await asyncio.gather(
        components.reader.count_retry_queue(org_id, RetryQueueFilter()),
        components.reader.dead_now(org_id),
        _open_alerts(components, org_id),
    )
    return {
        "/console/retry-queue": _badge(retrying.value, _SHOWN_MAX),
        "/console/dead-letters": _badge(dead, _SHOWN_MAX),
        "/console/alerts": _badge(alerts, _ALERTS_MAX),
    }


async def _open_alerts(components: Components, org_id: UUID) -> int:
    """The number of open alerts, or one more than the limit. 0 if the database does not offer alerts."""
    try:
        alerts = await components.alerts.alerts(org_id, AlertFilter(is_open=True), None, _ALERTS_MAX)
    except NotOffered:
        return 0
    return len(alerts.items) + (alerts.next is not None)


def _badge(count: int, shown_max: int) -> str:
    return "" if not count else f"{shown_max}+" if count > shown_max else amount(count)
