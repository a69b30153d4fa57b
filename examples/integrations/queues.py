"""The retry queue and the dead-letter queue as one object: for the program's routes, and for Python programs.

    queues = IntegrationQueues(AsyncClient(url, key))
    (entry_id,) = await queues.add("invoice.issued", {"number": "R-7"})

An entry is a delivery that failed at least once. Its log entry is the attempt log of the delivery, and has the same id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from doorstep.client import AsyncClient, Page, Selection
from doorstep.schemas.bulk import Bulk
from doorstep.schemas.deliveries import Attempt, Delivery
from doorstep.web import iso

Json: TypeAlias = dict[str, object]
Status: TypeAlias = Literal["pending", "in_progress", "succeeded", "failed"]
STATUS_OF: dict[str, Status] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "delivered": "succeeded",
    "resolved": "succeeded",
    "dead": "failed",
    "archived": "failed",
    "cancelled": "failed",
}
"""The status of an entry, by the state of its delivery."""
IN_DLQ = ("dead", "archived")
LOG_STATUS = {"pending": "pending", "in_progress": "pending", "succeeded": "success", "failed": "failed"}
MAX_RETRIES = 3
DEFAULT_POLICY = "exponential"
_POLL_SECONDS = 0.1

RETRIED = "Retry successful. Event removed from queue."
DELETED = "Entry deleted from DLQ."
BULK_RUNNING = "{succeeded}/{total} succeeded, {failed}/{total} failed"
BULK_COMPLETE = "Bulk retry complete. {succeeded} succeeded, {failed} failed."


class Listed(NamedTuple):
    """One page of a queue."""

    entries: list[Json]
    pagination: Any


class Retried(NamedTuple):
    """A manual retry: the entry, and the outcome if it is known by now."""

    entry: Json
    message: str | None


class BulkRetried(NamedTuple):
    """A bulk retry. Entries that could not be retried, because they have left the queue, count as failed."""

    bulk_id: UUID
    total: int
    succeeded: int
    failed: int
    complete: bool
    message: str


class IntegrationQueues:
    """`org_id` is only shown: the organization is that of the client's key."""

    def __init__(self, client: AsyncClient, org_id: UUID | None = None) -> None:
        self._client = client
        self._org_id = org_id
        self._policies: dict[UUID, str] = {}

    # -- the retry queue -----------------------------------------------------------------------------------

    async def add(self, event_type: str, payload: object, *, systems: Sequence[UUID] | None = None) -> list[UUID]:
        """Send an event to the systems that take its type, or to these. Returns the id of each entry. It is in the
        retry queue once its first attempt has failed."""
        receipt = await self._client.send(event_type, payload, endpoint_ids=systems)
        return [one.delivery_id for one in (await self._client.events.read(receipt.event_id)).deliveries]

    async def process(self, timeout_seconds: float = 60.0) -> int:
        """Wait until every entry that is due has been retried. Returns the number of these entries.

        The server retries entries by itself, within a second after they are due. So this is for scripts and tests.
        """
        seen: set[UUID] = set()
        deadline = time.monotonic() + timeout_seconds
        while due := [one.delivery_id async for one in self._client.retry_queue.each() if _is_due(one)]:
            seen.update(due)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(due)} entries are still due after {timeout_seconds:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        return len(seen)

    async def retry_queue(self, **filters: Any) -> Listed:
        """One page of the entries that wait for a retry or are being retried, next retry first."""
        return await self._listed(await self._client.retry_queue.page(**filters))

    async def manual_retry(self, entry_id: UUID | str, *, wait_seconds: float = 10.0) -> Retried:
        """Retry an entry now, and wait for the outcome."""
        before = (await self._client.deliveries.read(entry_id)).attempts  # a claim counts, and may follow at once
        await self._client.retry_queue.retry(entry_id)
        return await self._outcome(entry_id, before, wait_seconds)

    async def _outcome(self, entry_id: UUID | str, before: int, wait_seconds: float) -> Retried:
        """What became of a retry after `before` attempts."""
        deadline = time.monotonic() + wait_seconds
        while True:
            delivery = await self._client.deliveries.read(entry_id)
            if delivery.state == "delivered":
                return Retried(await self._entry(delivery), RETRIED)
            if delivery.attempts > before and delivery.state != "in_progress":
                entry = await self._entry(delivery)
                return Retried(entry, f"Retry failed: {entry['error_message']}")
            if time.monotonic() > deadline:
                return Retried(await self._entry(delivery), None)
            await asyncio.sleep(_POLL_SECONDS)

    async def bulk_retry(self, entry_ids: Sequence[UUID], *, wait_seconds: float = 10.0) -> BulkRetried:
        """Retry entries in parallel, and wait for the outcome. After `wait_seconds`, returns the progress so far."""
        bulk = await self._client.retry_queue.bulk_retry(Selection.of(entry_ids))
        deadline = time.monotonic() + wait_seconds
        while not bulk.ended and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            bulk = await self._client.bulk.read(bulk.bulk_id)
        return _bulk_retried(bulk)

    async def bulk_retried(self, bulk_id: UUID | str) -> BulkRetried:
        """The progress of a bulk retry."""
        return _bulk_retried(await self._client.bulk.read(bulk_id))

    async def skip(self, entry_id: UUID | str) -> Json:
        """Move an entry to the dead-letter queue. It keeps its error."""
        return await self._entry(await self._client.retry_queue.skip(entry_id))

    # -- the dead-letter queue -----------------------------------------------------------------------------

    async def dead_letter_queue(self, **filters: Any) -> Listed:
        """One page of the dead letters, newest first."""
        return await self._listed(await self._client.dead_letters.page(**filters))

    async def retry_dead_letter(self, entry_id: UUID | str, *, wait_seconds: float = 10.0) -> Retried:
        """Move an entry back to the retry queue, and wait for the outcome: it is retried in five seconds, with its retry
        count at zero."""
        before = (await self._client.deliveries.read(entry_id)).attempts
        await self._client.dead_letters.retry(entry_id)
        return await self._outcome(entry_id, before, wait_seconds)

    async def resolve(self, entry_id: UUID | str, *, reason: str | None = None) -> Json:
        """Mark a dead letter as resolved: it needs no delivery any more."""
        return await self._entry(await self._client.dead_letters.resolve(entry_id, reason=reason))

    async def delete(self, entry_id: UUID | str) -> str:
        """Delete a dead letter. Its log entry is kept."""
        await self._client.dead_letters.delete(entry_id)
        return DELETED

    # -- the integration log -------------------------------------------------------------------------------

    async def log(self, **filters: Any) -> Listed:
        """One page of the integration log, newest first: what was sent to which system, successes included."""
        page = await self._client.deliveries.page(**filters)
        return Listed([_log_entry(one, one.endpoint_name) for one in page], page.pagination)

    async def log_entry(self, log_id: UUID | str) -> Json:
        """One entry of the log with its last response and every attempt."""
        delivery = await self._client.deliveries.read(log_id)
        endpoint = await self._client.endpoints.read(delivery.endpoint_id)
        attempts = (await self._client.deliveries.attempts(delivery.delivery_id)).items
        return _log_entry(delivery, endpoint.name) | {
            "response": attempts[-1].response_body if attempts else None,
            "error_message": _error(delivery, attempts[-1] if attempts else None),
            "attempts": [_attempt(one) for one in attempts],
        }

    # -- entries -------------------------------------------------------------------------------------------

    async def entry(self, entry_id: UUID | str) -> Json:
        """One entry, whatever became of it."""
        return await self._entry(await self._client.deliveries.read(entry_id))

    async def _listed(self, page: Page[Any]) -> Listed:
        return Listed([await self._entry(one) for one in page], page.pagination)

    async def _entry(self, one: Delivery) -> Json:
        attempts = (await self._client.deliveries.attempts(one.delivery_id)).items
        last = attempts[-1] if attempts else None
        failures = [attempt.finished_at for attempt in attempts if attempt.error_category is not None]
        status = STATUS_OF[one.state]
        return {
            "id": one.delivery_id,
            "org_id": self._org_id,
            "log_id": one.delivery_id,
            "retry_count": one.retry_attempts,
            "max_retries": MAX_RETRIES,
            "retry_policy": await self._policy(one.endpoint_id),
            "next_retry_at": iso(one.next_retry_at) if status == "pending" else None,
            "last_retry_at": iso(one.last_attempt_at) if one.attempts > 1 else None,
            "status": status,
            "in_dlq": one.state in IN_DLQ,
            "error_message": _error(one, last),
            "error_stack": last.error_detail or None if last and last.error_category else None,
            "created_at": iso(failures[0] if failures else one.settled_at or one.created_at),
            "updated_at": iso(one.settled_at or one.last_attempt_at or one.created_at),
        }

    async def _policy(self, endpoint_id: UUID) -> str:
        if endpoint_id not in self._policies:
            policy = (await self._client.endpoints.read(endpoint_id)).policy
            self._policies[endpoint_id] = policy.name if policy else DEFAULT_POLICY
        return self._policies[endpoint_id]


def _is_due(one: Delivery) -> bool:
    return one.state == "in_progress" or (one.next_retry_at is not None and one.next_retry_at <= datetime.now(UTC))


def _error(one: Delivery, last: Attempt | None) -> str | None:
    """The error of the last attempt. A dead letter without an attempt has one too: why it could not be attempted."""
    if last is not None:
        return last.error_reason if last.error_category else None
    return getattr(one, "error_reason", None)


def _log_entry(one: Delivery, external_system: str) -> Json:
    return {
        "log_id": one.delivery_id,
        "event_id": one.event_id,
        "event_type": one.event_type,
        "external_system": external_system,
        "status": LOG_STATUS[STATUS_OF[one.state]],
        "message": one.remark,
        "response_code": one.response_code,
        "created_at": iso(one.created_at),
    }


def _attempt(one: Attempt) -> Json:
    return {
        "number": one.number,
        "attempted_at": iso(one.started_at),
        "response_code": one.response_code,
        "error_message": one.error_reason or None,
        "next_retry_at": iso(one.next_retry_at),
    }


def _bulk_retried(bulk: Bulk) -> BulkRetried:
    failed = bulk.failed + bulk.refused
    text = BULK_COMPLETE if bulk.ended else BULK_RUNNING
    message = text.format(succeeded=bulk.succeeded, failed=failed, total=bulk.total)
    return BulkRetried(bulk.bulk_id, bulk.total, bulk.succeeded, failed, bulk.ended, message)
