"""Actions on whole events: retry, cancel, acknowledge, replay, test, delete. Each is audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock
from doorstep.engine import facts
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.directory import existing
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ActionKind, ActionResult, audit_entry
from doorstep.model.bulk import Bulk, Selection
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import Event, EventView, Receipt
from doorstep.model.listing import EventDeliveries, EventFilter
from doorstep.operations.deliveries import DeliveryActions
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

T = TypeVar("T")
TEST_EVENT = "doorstep.test"
TEST_PAYLOAD = b'{"message":"This is a test from Doorstep."}'


class EventActions:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        accepter: Accepter,
        delivery_actions: DeliveryActions,
        replayer: Replayer,
        telemetry: Telemetry,
    ) -> None:
        self._store = store
        self._clock = clock
        self._accepter = accepter
        self._delivery_actions = delivery_actions
        self._replayer = replayer
        self._telemetry = telemetry

    async def act(self, kind: ActionKind, org_id: UUID, event_id: UUID, actor: str, reason: str = "") -> ActionResult:
        """Retry or cancel all deliveries of the event that allow it; Conflict if none does."""
        _check_accepted(await self._store.get(EventView, org_id, event_id))
        deliveries = await self._store.find(org_id, EventDeliveries(event_id=event_id))
        if not deliveries:
            raise Conflict(f"event {event_id} has no deliveries to {kind}: no endpoint takes it")
        ids = [delivery.delivery_id for delivery in deliveries]
        result = await self._delivery_actions.act(kind, org_id, ids, actor, reason)
        if not result.done:
            raise Conflict(f"event {event_id} has nothing to {kind}: {_states(result)}")
        return result

    async def acknowledge(self, org_id: UUID, event_id: UUID, actor: str) -> None:
        """Confirm that an inbox consumer has received the event; Conflict if push endpoints take it."""
        now = self._clock.now()
        change = await self._of_accepted(org_id, event_id, self._store.acknowledge(org_id, event_id, now))
        if change.old_status is not change.new_status:
            self._telemetry.emit_all(facts.status_changes((change,), now))
            await self._audit(org_id, actor, "event.acknowledge", (event_id,), change.new_status)

    async def replay(self, org_id: UUID, event_id: UUID, endpoint_id: UUID, actor: str) -> Receipt:
        """Send the payload of the event to one endpoint again, as a new event."""
        await self._store.get(EventView, org_id, event_id)
        await self._check_target(org_id, endpoint_id)
        receipt = await self._replayer.replay_one(org_id, event_id, endpoint_id)
        await self._audit(org_id, actor, "event.replay", (event_id, endpoint_id), f"event {receipt.event_id}")
        return receipt

    async def test(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        correlation_id: str,
        event_type: str = TEST_EVENT,
        payload: bytes = TEST_PAYLOAD,
    ) -> Receipt:
        """Send a test event to one endpoint, like any other event."""
        existing(await self._store.get(Endpoint, org_id, endpoint_id))
        draft = Draft(
            org_id=org_id,
            event_type=event_type,
            payload=payload,
            correlation_id=correlation_id,
            endpoint_ids=(endpoint_id,),
        )
        (receipt,) = await self._accepter.accept([draft])
        await self._audit(org_id, actor, "endpoint.test", (endpoint_id,), f"event {receipt.event_id}")
        return receipt

    async def delete(self, org_id: UUID, event_id: UUID, actor: str, reason: str = "") -> None:
        """Erase an event: cancel its waiting deliveries, delete its dead letters and its payload. The attempt log is
        kept."""
        check_storable("reason", reason)
        now = self._clock.now()
        deletion = self._store.delete_event(org_id, event_id, actor, now, reason)
        moved = await self._of_accepted(org_id, event_id, deletion)
        self._telemetry.emit_all(facts.moved(moved, now))

    async def _of_accepted(self, org_id: UUID, event_id: UUID, action: Awaitable[T]) -> T:
        """The result of an action. For an event that is still in the outbox, raises Conflict instead of NotFound."""
        try:
            return await action
        except NotFound:
            _check_accepted(await self._store.get(EventView, org_id, event_id))
            raise

    async def _check_target(self, org_id: UUID, endpoint_id: UUID) -> None:
        """Raise InvalidInput instead of NotFound, because the request names the endpoint in its body, not in its
        path."""
        try:
            endpoint = await self._store.get(Endpoint, org_id, endpoint_id)
        except NotFound:
            raise InvalidInput("endpoint_id", f"there is no endpoint {endpoint_id}") from None
        if endpoint.state is EndpointState.DELETED:
            raise InvalidInput("endpoint_id", f"endpoint {endpoint_id} was deleted")

    async def _audit(self, org_id: UUID, actor: str, action: str, subjects: tuple[UUID, ...], result: str) -> None:
        await self._store.write([], audit_entry(self._clock.now(), org_id, actor, action, *subjects, result=result))


def _check_accepted(view: EventView) -> None:
    """Raise Conflict for an event that is still in the outbox, where no action is possible."""
    event_id = view.event.event_id
    if view.refusal is not None:
        raise Conflict(f"event {event_id} was rejected in the outbox ({view.refusal}); see `doorstep outbox list`")
    if view.in_outbox:
        raise Conflict(f"event {event_id} is still in the outbox; try again in a moment")


def _states(result: ActionResult) -> str:
    """`1 delivery is delivered, 2 are in_progress`."""
    counts = Counter(state or "deleted" for state in result.refused.values())
    return ", ".join(f"{count} {'is' if count == 1 else 'are'} {state}" for state, count in sorted(counts.items()))


class Replayer:
    def __init__(self, store: Store, accepter: Accepter) -> None:
        self._store = store
        self._accepter = accepter

    async def replay_one(self, org_id: UUID, event_id: UUID, endpoint_id: UUID) -> Receipt:
        view = await self._store.get(EventView, org_id, event_id)
        return (await self._accepter.accept([_copy_of(view.event, endpoint_id)]))[0]

    async def replay(self, bulk: Bulk, room: int) -> Bulk:
        """Send the next events of a bulk operation, oldest first; returns the operation after this step.

        Each event has an idempotency key, so a step that is repeated after a crash sends nothing twice.
        """
        assert bulk.endpoint_id is not None, "a replay has a target endpoint"
        page = await self._store.page(bulk.org_id, _oldest_first(bulk.selection, bulk), bulk.cursor, room)
        drafts = []
        for summary in page.items:
            with suppress(NotFound):  # deleted or cleaned a moment ago
                view = await self._store.get(EventView, bulk.org_id, summary.event_id)
                key = f"replay:{bulk.bulk_id}:{summary.event_id}"
                drafts.append(replace(_copy_of(view.event, bulk.endpoint_id), idempotency_key=key))
        if drafts:
            await self._accepter.accept(drafts)
        sent = len(drafts)
        return replace(
            bulk,
            cursor=page.next,
            all_taken=page.next is None,
            taken=bulk.taken + sent,
            succeeded=bulk.succeeded + sent,
        )


def _oldest_first(selection: Selection, bulk: Bulk) -> EventFilter:
    chosen = selection.events or EventFilter()
    before = bulk.created_at if chosen.created_before is None else min(chosen.created_before, bulk.created_at)
    return replace(chosen, created_before=before, oldest_first=True)


def _copy_of(event: Event, endpoint_id: UUID) -> Draft:
    return Draft(
        org_id=event.org_id,
        event_type=event.event_type,
        payload=event.payload,
        correlation_id=event.correlation_id,
        endpoint_ids=(endpoint_id,),
        metadata=event.metadata,
        ordering_key=event.ordering_key,
    )
