"""Operator actions on deliveries and on whole events, such as retry, cancel, delete and replay. Every action is
audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from doorstep.clock import Clock, seconds
from doorstep.engine import facts
from doorstep.engine.accept import Accepter, Draft
from doorstep.engine.directory import Tuning, existing
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ACTS_ON, Action, ActionKind, ActionResult, audit_entry
from doorstep.model.delivery import DeliveryState, States
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Event, EventView, Receipt
from doorstep.model.listing import EventDeliveries
from doorstep.operations.endpoints import check_endpoints_exist
from doorstep.policy.payload import check_payload
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

T = TypeVar("T")
TEST_EVENT = "doorstep.test"
TEST_PAYLOAD = b'{"message":"This is a test from Doorstep."}'
DONE = {
    ActionKind.RETRY: "retried",
    ActionKind.SKIP: "skipped",
    ActionKind.RESOLVE: "resolved",
    ActionKind.DELETE: "deleted",
    ActionKind.CANCEL: "cancelled",
}
"""The past participle of each action, for messages."""


class DeliveryActions:
    """Performs operator actions on deliveries. Each action and its audit entry are written in one transaction. `wake`
    is called when deliveries may have become due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tuning: Tuning,
        telemetry: Telemetry,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tuning = tuning
        self._telemetry = telemetry
        self._wake = wake

    async def act(
        self,
        kind: ActionKind,
        org_id: UUID,
        delivery_ids: Sequence[UUID],
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> ActionResult:
        """Retry, skip, resolve, delete or cancel deliveries. A delivery whose state does not allow the action is
        refused.

        A dead letter can be retried with another payload, which replaces the event's payload for this delivery from
        then on. `only_in` contains the states that the operator's list showed. A delivery that has left these states is
        refused too.
        """
        if not delivery_ids:
            raise InvalidInput("delivery_ids", "must name at least one delivery")
        check_storable("reason", reason)
        if payload is not None:
            check_payload(payload, self._tuning.payload_bytes_max)
        now = self._clock.now()
        result, done = await self._store.act(
            Action(
                kind=kind,
                org_id=org_id,
                delivery_ids=tuple(delivery_ids),
                actor=actor,
                at=now,
                reason=reason,
                revive_at=now + seconds(self._tuning.revive_after_seconds),
                payload=payload,
                only_in=only_in,
            )
        )
        self._telemetry.emit_all(facts.moved(done, now))
        self._wake()
        return result

    async def act_on(
        self,
        kind: ActionKind,
        org_id: UUID,
        delivery_id: UUID,
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> None:
        """Act on one delivery. Raises NotFound if it does not exist, and Conflict if its state does not allow the
        action."""
        result = await self.act(kind, org_id, [delivery_id], actor, reason, payload, only_in=only_in)
        if result.done:
            return
        state = result.refused[delivery_id]
        if state is None:
            raise NotFound(f"no delivery {delivery_id}")
        raise Conflict(f"delivery {delivery_id} is {_refusal(kind, state, edited=payload is not None)}")


def _refusal(kind: ActionKind, state: DeliveryState, *, edited: bool) -> str:
    if edited:
        return f"{state} and cannot be {DONE[kind]} with another payload"
    if state in ACTS_ON[kind]:  # allowed, but the delivery has left the list that the operator saw
        return f"{state} by now and was not {DONE[kind]}; check it and decide again"
    return f"{state} and cannot be {DONE[kind]}"


# -- whole events ------------------------------------------------------------------------------------------


class EventActions:
    """Performs operator actions on whole events. `wake` is called when deliveries may have become due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        accepter: Accepter,
        delivery_actions: DeliveryActions,
        telemetry: Telemetry,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._accepter = accepter
        self._delivery_actions = delivery_actions
        self._telemetry = telemetry
        self._wake = wake

    async def act(self, kind: ActionKind, org_id: UUID, event_id: UUID, actor: str, reason: str = "") -> ActionResult:
        """Retry or cancel each of the event's deliveries that is in a state that allows this. Raises Conflict if there
        are none."""
        check_accepted(await self._store.get(EventView, org_id, event_id))
        deliveries = await self._store.find(org_id, EventDeliveries(event_id=event_id))
        if not deliveries:
            raise Conflict(f"event {event_id} has no deliveries to {kind}: no endpoint takes it")
        ids = [delivery.delivery_id for delivery in deliveries]
        result = await self._delivery_actions.act(kind, org_id, ids, actor, reason)
        if not result.done:
            raise Conflict(f"event {event_id} has nothing to {kind}: {_states(result)}")
        return result

    async def replay(self, org_id: UUID, event_id: UUID, endpoint_id: UUID, actor: str) -> Receipt:
        """Send the payload of the event to one endpoint again, as a new event."""
        view = await self._store.get(EventView, org_id, event_id)
        await check_endpoints_exist(self._store, org_id, [endpoint_id], "endpoint_id")
        (receipt,) = await self._accepter.accept([copy_of(view.event, endpoint_id)])
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
        """Erase an event: cancel its waiting deliveries, and delete its dead letters and its payload. The attempt log
        is kept."""
        check_storable("reason", reason)
        now = self._clock.now()
        try:
            moved = await self._store.delete_event(org_id, event_id, actor, now, reason)
        except NotFound:
            check_accepted(await self._store.get(EventView, org_id, event_id))
            raise
        self._telemetry.emit_all(facts.moved(moved, now))
        self._wake()  # the next delivery of its ordering group may be due

    async def _audit(self, org_id: UUID, actor: str, action: str, subjects: tuple[UUID, ...], result: str) -> None:
        await self._store.write([], audit_entry(self._clock.now(), org_id, actor, action, *subjects, result=result))


def check_accepted(view: EventView) -> None:
    """Raise Conflict for an event that is still in the outbox, where no action is possible."""
    event_id = view.event.event_id
    if view.refusal is not None:
        raise Conflict(f"event {event_id} was rejected in the outbox ({view.refusal}); see `doorstep outbox list`")
    if view.in_outbox:
        raise Conflict(f"event {event_id} is still in the outbox; try again in a moment")


def _states(result: ActionResult) -> str:
    """The states of the refused deliveries as text, such as `1 is delivered, 2 are in_progress`."""
    counts = Counter(state or "deleted" for state in result.refused.values())
    return ", ".join(f"{count} {'is' if count == 1 else 'are'} {state}" for state, count in sorted(counts.items()))


def copy_of(event: Event, endpoint_id: UUID) -> Draft:
    """A new event with the same content, for one endpoint."""
    return Draft(
        org_id=event.org_id,
        event_type=event.event_type,
        payload=event.payload,
        correlation_id=event.correlation_id,
        endpoint_ids=(endpoint_id,),
        metadata=event.metadata,
        ordering_key=event.ordering_key,
        user_id=event.user_id,
    )
