"""The counts in the menu: dead letters, the retry queue and open alerts. Each is bounded, and costs one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from doorstep.console.formatting import amount
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
        components.alerts.alerts(org_id, AlertFilter(is_open=True), None, _ALERTS_MAX),
    )
    return {
        "/console/retry-queue": _badge(retrying.value, _SHOWN_MAX),
        "/console/dead-letters": _badge(dead, _SHOWN_MAX),
        "/console/alerts": _badge(len(alerts.items) + (alerts.next is not None), _ALERTS_MAX),
    }


def _badge(count: int, shown_max: int) -> str:
    return "" if not count else f"{shown_max}+" if count > shown_max else amount(count)
