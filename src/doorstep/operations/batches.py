"""Batches: submit them, find them by status, read their carrier logs, and resubmit them.

A batch is an event for a batch endpoint and is delivered like any other event. It has no state of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Unpack
from uuid import UUID

from doorstep.engine import facts
from doorstep.engine.accept import Options, check_options
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotFound
from doorstep.model.action import Action, ActionKind
from doorstep.model.batch import Batch, BatchFilter, BatchStatus, SubmissionAttempt, batch_of, submission_of
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventSummary
from doorstep.model.listing import DeliveryAttempts, EventDeliveries, Page
from doorstep.operations.endpoints import Declaration
from doorstep.operations.outbox import Host
from doorstep.operations.pages import full_page
from doorstep.operations.reader import checked_limit
from doorstep.operations.sending import Sending
from doorstep.policy.routing import route
from doorstep.schemas.events import Receipt
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store

RESUBMIT = "batch.resubmit"
"""The name of the action in the audit log."""


class Batches:
    """`doorstep.batches`. The `batch_id` of a batch is the id of its event."""

    def __init__(self, host: Host, default_org: UUID) -> None:
        self._host = host
        self._default_org = default_org

    def submit(self, event_type: str, payload: object, **options: Unpack[Options]) -> Sending[Batch]:
        """Accept a batch. When the `await` returns, the batch is PENDING and on stable storage; its `delivery_id` is not known
        yet.

        After the batch is stored, nothing is read from the store, because an error in that read could make the caller
        submit the batch twice. The exception is an idempotency key that repeats an earlier submission: then the current
        state of that batch is read. Raises InvalidInput if there is no batch handler for this event type.
        """
        check_options(options)
        if options.get("endpoint_ids") is not None:
            raise InvalidInput(
                "endpoint_ids", "cannot be set: a batch goes to its batch handler; send an event to choose endpoints"
            )
        return Sending(f"submit({event_type!r}, …)", partial(self._submit, event_type, payload, options))

    async def _submit(self, event_type: str, payload: object, options: Options) -> Batch:
        org_id = options.get("org_id", self._default_org)
        endpoint, retries_max = await self._host.binding.call(lambda: self._batch_endpoint(org_id, event_type))
        receipt: Receipt = await self._host.send(event_type, payload, **options)
        if receipt.verdict == "repeated":
            return await self.batch(receipt.event_id, org_id=org_id)
        return _submitted(receipt, endpoint, event_type, retries_max)

    async def batch(self, batch_id: UUID, *, org_id: UUID | None = None) -> Batch:
        """The current state of a batch. Raises NotFound if the event is not a batch."""
        return await self._host.binding.call(lambda: self._read(self._org(org_id), batch_id))

    async def list(
        self,
        status: BatchStatus | None = None,
        event_type: str | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        org_id: UUID | None = None,
    ) -> Page[Batch]:
        """One page of batches, newest first. The cost does not depend on how many other batches and events are
        stored."""
        filters = BatchFilter(status=status, event_type=event_type)
        most = checked_limit(limit)
        return await self._host.binding.call(lambda: self._page(self._org(org_id), filters, cursor, most))

    async def attempts(self, batch_id: UUID, *, org_id: UUID | None = None) -> Sequence[SubmissionAttempt]:
        """The carrier log: every submission in order, including those before a resubmission."""
        return await self._host.binding.call(lambda: self._attempts(self._org(org_id), batch_id))

    async def resubmit(self, batch_id: UUID, actor: str, reason: str = "", *, org_id: UUID | None = None) -> Batch:
        """Submit a FAILED batch again immediately, with its retry count reset. This is audited. Raises Conflict if the
        batch has any other status."""
        check_storable("reason", reason)
        return await self._host.binding.call(lambda: self._resubmit(self._org(org_id), batch_id, actor, reason))

    def _org(self, org_id: UUID | None) -> UUID:
        return self._default_org if org_id is None else org_id

    # -- on the open store ---------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        return self._host.components.store

    async def _batch_endpoint(self, org_id: UUID, event_type: str) -> tuple[Endpoint, int]:
        """The batch endpoint for an event type, and the number of retries of its policy."""
        directory = self._host.components.directory
        for endpoint in route(await directory.endpoints_of(org_id), event_type):
            if endpoint.batch:
                return endpoint, len(directory.policy(endpoint, event_type).delays)
        raise InvalidInput("event_type", f"no batch handler takes {event_type[:140]!r}; declare one for it")

    async def _delivery(self, org_id: UUID, batch_id: UUID) -> Delivery:
        """The delivery that submits the batch. A deleted event still has deliveries, but is no longer a batch."""
        known = await self._store.get_many(EventSummary, org_id, [batch_id])
        deliveries = await self._store.find(org_id, EventDeliveries(event_id=batch_id)) if known else []
        for delivery in deliveries:
            if delivery.batch:
                return delivery
        raise NotFound(f"no batch {batch_id}")

    async def _attempts(self, org_id: UUID, batch_id: UUID) -> Sequence[SubmissionAttempt]:
        delivery = await self._delivery(org_id, batch_id)
        attempts = await self._store.find(org_id, DeliveryAttempts(delivery_id=delivery.delivery_id))
        return [submission_of(attempt) for attempt in attempts]

    async def _resubmit(self, org_id: UUID, batch_id: UUID, actor: str, reason: str) -> Batch:
        delivery_id = (await self._delivery(org_id, batch_id)).delivery_id
        now = self._host.clock.now()
        action = Action(
            kind=ActionKind.RETRY,
            org_id=org_id,
            delivery_ids=(delivery_id,),
            actor=actor,
            at=now,
            reason=reason,
            revive_at=now,
            only_in=DEAD_STATES,
            audited_as=(RESUBMIT, str(batch_id)),
        )
        result, moved = await self._store.act(action)
        if not result.done:
            raise Conflict(_refusal(batch_id, result.refused[delivery_id]))
        self._host.telemetry.emit_all(facts.moved(moved, now))
        self._host.components.wake_dispatcher()
        return await self._read(org_id, batch_id)

    async def _read(self, org_id: UUID, batch_id: UUID) -> Batch:
        (batch,) = await self._described(org_id, [await self._delivery(org_id, batch_id)])
        return batch

    async def _page(self, org_id: UUID, filters: BatchFilter, cursor: str | None, limit: int) -> Page[Batch]:
        found = await full_page(self._store, self._host.components.clock, org_id, filters, cursor, limit)
        return Page(tuple(await self._described(org_id, found.items)), found.next)

    async def _described(self, org_id: UUID, deliveries: Sequence[Delivery]) -> Sequence[Batch]:
        described = await self._host.components.reader.described(org_id, deliveries)
        return [batch_of(one.delivery, one.next_retry_at, one.held) for one in described]


def _submitted(receipt: Receipt, endpoint: Endpoint, event_type: str, retries_max: int) -> Batch:
    """A batch that has just been accepted."""
    return Batch(
        batch_id=receipt.event_id,
        org_id=endpoint.org_id,
        event_type=event_type,
        endpoint_id=endpoint.endpoint_id,
        status=BatchStatus.PENDING,
        created_at=receipt.created_at,
        retries_max=retries_max,
    )


def _refusal(batch_id: UUID, state: DeliveryState | None) -> str:
    if state is None:
        return f"batch {batch_id} was deleted by an operator and cannot be resubmitted; submit it as a new one"
    if state is DeliveryState.CANCELLED:
        return f"batch {batch_id} was cancelled and cannot be resubmitted; submit it as a new one"
    status = next(one for one in BatchStatus if state in BatchFilter(status=one).states)
    return f"batch {batch_id} is {status}; only {BatchStatus.FAILED} batches can be resubmitted"


def check_declarable(declaration: Declaration, others: Iterable[Declaration]) -> None:
    """Raise ConfigError if an event type would have a second batch handler. A batch has one status, so it needs exactly
    one handler."""
    form, org_id = declaration
    for other in others:
        shared = set(form.event_types) & set(other.form.event_types)
        if form.batch and other.form.batch and org_id == other.org_id and shared:
            raise ConfigError(
                f"the batch handlers {other.form.name!r} and {form.name!r} both take {min(shared)!r}; "
                "a batch needs exactly one handler"
            )
