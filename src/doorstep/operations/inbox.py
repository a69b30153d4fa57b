"""The inbox, as its consumers use it: they lease events, then acknowledge them or give them back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Clock, Instant, seconds
from doorstep.engine import facts
from doorstep.engine.accept import check_event_type
from doorstep.errors import Conflict, NotFound
from doorstep.model.event import EventView
from doorstep.model.inbox import InboxAnswer, InboxResult
from doorstep.operations.actions import check_accepted
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

_REFUSALS = {
    InboxResult.ALREADY_ACKNOWLEDGED: "event {} is already acknowledged",
    InboxResult.NEWER_LEASE: "the lease of event {} has ended, and the event was leased again; discard your result",
    InboxResult.NOT_IN_INBOX: "event {} is delivered to endpoints; only inbox events can be acknowledged",
    InboxResult.NOT_FOUND: "no event {}",
}


class InboxService:
    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry

    async def lease(
        self,
        org_id: UUID,
        holder: str,
        limit: int,
        visibility_seconds: float,
        event_types: Sequence[str] = (),
        user_id: str | None = None,
    ) -> list[EventView]:
        """Lease events that no other consumer holds, oldest first; with `user_id`, only events of this user."""
        for event_type in event_types:
            check_event_type("event_types", event_type)
        now = self._clock.now()
        until = now + seconds(visibility_seconds)
        return await self._store.lease_inbox(org_id, event_types, limit, holder, now, until, user_id)

    async def answer(
        self,
        org_id: UUID,
        events: Sequence[tuple[UUID, int | None]],
        actor: str,
        nack_seconds: float | None = None,
        user_id: str | None = None,
    ) -> dict[UUID, InboxResult]:
        """Acknowledge events, each with the token of its lease or None. With `nack_seconds`, give them back instead:
        they can be leased again after that time. With `user_id`, events of other users are not found."""
        now = self._clock.now()
        visible_at = None if nack_seconds is None else now + seconds(nack_seconds)
        answers = [InboxAnswer(event_id, token, visible_at, user_id) for event_id, token in events]
        answered = await self._store.answer_inbox(org_id, answers, actor, now)
        self._telemetry.emit_all(facts.status_changes(answered.changes, now))
        return answered.results

    async def acknowledge(
        self, org_id: UUID, event_id: UUID, actor: str, token: int | None = None, user_id: str | None = None
    ) -> None:
        """Confirm that a consumer has processed the event. Raises Conflict if the event goes to push endpoints, or if
        the token is not that of the newest lease."""
        await self._answer_one(org_id, event_id, actor, token, None, user_id)

    async def nack(
        self,
        org_id: UUID,
        event_id: UUID,
        actor: str,
        token: int | None,
        delay_seconds: float,
        user_id: str | None = None,
    ) -> None:
        """Give an event back. Raises Conflict like `acknowledge`, and if the event is already acknowledged."""
        await self._answer_one(org_id, event_id, actor, token, delay_seconds, user_id)

    async def _answer_one(
        self,
        org_id: UUID,
        event_id: UUID,
        actor: str,
        token: int | None,
        nack_seconds: float | None,
        user_id: str | None,
    ) -> None:
        (result,) = (await self.answer(org_id, [(event_id, token)], actor, nack_seconds, user_id)).values()
        if result is InboxResult.NOT_FOUND:
            view = await self._store.get(EventView, org_id, event_id)
            if view.event.belongs_to(user_id):
                check_accepted(view)
            raise NotFound(f"no event {event_id}")
        if (why := refusal(event_id, result)) is not None:
            raise Conflict(why)


def refusal(event_id: UUID, result: InboxResult) -> str | None:
    """Why an answer was refused, as a sentence; None if it was accepted."""
    return _REFUSALS[result].format(event_id) if result in _REFUSALS else None


def held_until(view: EventView, now: Instant) -> Instant | None:
    """When an event that cannot be leased now becomes available; None if it is available."""
    at = view.visible_at or view.event.deliver_at
    return None if at is None or at <= now else at


def holder_of(view: EventView, now: Instant) -> str | None:
    """Who holds a lease of the event now."""
    return None if held_until(view, now) is None else view.leased_by
