"""Helpers that read deliveries and attempts through the API, as its users do; shared by the tests of all examples."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

from doorstep.clock import from_datetime
from doorstep.schemas.deliveries import Attempt, Delivery
from examples.theatre import NOON, Theatre
from tests.docs.pages import HOW_TO, fences

PROFILES = HOW_TO / "profiles"


async def status_of(stage: Theatre, event_id: UUID) -> str:
    return (await stage.api.events.status(event_id)).status


async def delivery_of(stage: Theatre, event_id: UUID) -> Delivery:
    """The one delivery of an event."""
    (delivery,) = (await stage.api.events.read(event_id)).deliveries
    return delivery


async def attempts_of(stage: Theatre, event_id: UUID) -> list[Attempt]:
    """The attempt log of the one delivery of an event."""
    delivery = await delivery_of(stage, event_id)
    return list(await stage.api.deliveries.attempts(delivery.delivery_id))


def since_noon(instant: datetime | None) -> float:
    """Seconds since the beginning of the story."""
    assert instant is not None
    return (from_datetime(instant) - NOON) / 1_000_000


async def starts_of(stage: Theatre, event_id: UUID) -> list[float]:
    """When each attempt of the event's delivery began."""
    return [since_noon(attempt.started_at) for attempt in await attempts_of(stage, event_id)]


def story_in(page: Path) -> str:
    """The example's output, as shown on its page."""
    (text,) = [text for text in fences(page, "text") if text.startswith("day 1 ")]
    return text.strip()
