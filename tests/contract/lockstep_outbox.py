"""The outbox in lockstep: messages that wait, are forwarded, rejected, requeued and removed, in any order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import Submission
from doorstep.model.listing import RejectedMessages
from doorstep.model.org import Org
from doorstep.model.outbox import OutboxMessage, OutboxOptions, event_of
from doorstep.stores.store import Store, Topic
from tests.support.shortcuts import post

T = TypeVar("T")


class OutboxSteps:
    """The steps of the state machine (lockstep.py) that work on messages."""

    now: Instant
    orgs: list[Org]
    endpoints: list[Endpoint]
    both: Callable[[Callable[[Any], Awaitable[Any]]], Any]
    take_in: Callable[[list[Submission]], None]
    new_event_id: Callable[[], UUID]
    new_delivery_id: Callable[[], UUID]

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[tuple[UUID, UUID]] = []
        """Organization and event id of every message ever posted."""

    def post(self, options: list[OutboxOptions], org: int) -> None:
        messages = [self._message(self.orgs[org].org_id, one) for one in options]
        self.both(lambda side: post(side.store, messages))
        self.posted += [(one.org_id, one.event_id) for one in messages]

    def forward(self, limit: int, cleared: bool) -> None:
        """Accept the waiting messages. Without `cleared`, the forwarder dies early, and they are accepted again."""
        messages = self.both(lambda side: side.store.outbox(limit))
        self.take_in([self._submission_of(one) for one in messages])
        if cleared:
            self.both(lambda side: side.store.clear_outbox([one.event_id for one in messages]))

    def clear_outbox(self, picks: list[int]) -> None:
        self.both(lambda side: side.store.clear_outbox(self._chosen(picks)))

    def reject(self, picks: list[int], why: str) -> None:
        for event_id in self._chosen(picks):
            self.both(lambda side, event_id=event_id: side.store.reject(event_id, why, self.now))

    def requeue(self, picks: list[int]) -> None:
        self.both(lambda side: _in_any_order(side.store.requeue(self._chosen(picks), self._line("outbox.retry"))))

    def discard(self, picks: list[int]) -> None:
        self.both(lambda side: _in_any_order(side.store.discard(self._chosen(picks), self._line("outbox.discard"))))

    def read_outbox(self, limit: int) -> None:
        self.both(lambda side: side.store.outbox(limit))
        self.both(lambda side: side.store.find(None, RejectedMessages(limit=limit)))
        self.both(lambda side: side.store.any_waiting(Topic.OUTBOX))

    def _chosen(self, picks: list[int]) -> list[UUID]:
        """Event ids of posted messages; pick 0 is the newest."""
        return [self.posted[-1 - pick % len(self.posted)][1] for pick in picks] if self.posted else []

    def _message(self, org_id: UUID, options: OutboxOptions) -> OutboxMessage:
        return OutboxMessage(
            event_id=self.new_event_id(),
            org_id=org_id,
            event_type="order.paid",
            payload=b'{"n":  1}',
            created_at=self.now,
            options=options,
        )

    def _submission_of(self, message: OutboxMessage) -> Submission:
        own = [endpoint for endpoint in self.endpoints if endpoint.org_id == message.org_id]
        owed = tuple(NewDelivery(self.new_delivery_id(), endpoint.endpoint_id, self.now, 1) for endpoint in own)
        return Submission(replace(event_of(message), created_at=self.now), owed, None, message.payload)

    def _line(self, action: str) -> AuditEntry:
        return AuditEntry(at=self.now, org_id=self.orgs[0].org_id, actor="ops", action=action, subjects=(), result="")


async def outbox_of(store: Store) -> dict[str, Any]:
    """Everything that a store returns about its outbox."""
    return {"outbox": await store.outbox(1_000), "rejected": await store.find(None, RejectedMessages(limit=1_000))}


async def _in_any_order(messages: Awaitable[list[OutboxMessage]]) -> list[OutboxMessage]:
    return sorted(await messages, key=lambda one: one.event_id)
