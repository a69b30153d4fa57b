"""Actions of operators on deliveries: retry, skip, resolve, delete, cancel. Every action is audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from doorstep.clock import Clock, seconds
from doorstep.engine import facts
from doorstep.engine.directory import Tuning
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import ACTS_ON, Action, ActionKind, ActionResult
from doorstep.model.delivery import DeliveryState, States
from doorstep.policy.payload import check_payload
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

DONE = {
    ActionKind.RETRY: "retried",
    ActionKind.SKIP: "skipped",
    ActionKind.RESOLVE: "resolved",
    ActionKind.DELETE: "deleted",
    ActionKind.CANCEL: "cancelled",
}
"""The past participle of each action, for messages."""


class DeliveryActions:
    """Each action and its audit entry are one transaction. `wake` is called when deliveries may have become due."""

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
        then on. `only_in` has the states of the list that the operator saw: deliveries that are in none of them any
        more are refused too.
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
        """Act on one delivery; NotFound if there is none, Conflict if its state does not allow the action."""
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
    if state in ACTS_ON[kind]:  # but it has left the list that the operator saw
        return f"{state} by now and was not {DONE[kind]}; check it and decide again"
    return f"{state} and cannot be {DONE[kind]}"
