"""The simulated operators of the demo. Every few seconds one of them acts, so that the audit log has entries."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle
from typing import Any
from uuid import UUID

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.demo.shop import (
    ACCOUNTING,
    BLANK,
    ERP,
    GATE,
    MARKETPLACE,
    STOREFRONT,
    WAREHOUSE,
    Actors,
    Sample,
    ensure_keys,
    id_of,
)
from doorstep.clock import SECOND
from doorstep.engine.accept import new_correlation_id
from doorstep.errors import DoorstepError, NotFound
from doorstep.model.action import ActionKind
from doorstep.model.alert import AlertFilter, Rule
from doorstep.model.attempt import Code
from doorstep.model.batch import BatchStatus
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.listing import DeadLetterFilter, EventFilter
from doorstep.pipelines.pipeline import Pipeline

_PAUSE_SECONDS = 12.0
_WAITING_MIN = 3
"""The operators review bills only while more than this many are waiting at the gate."""
_REJECTED_SHARE = 0.08
_SILENCE_SECONDS = 240


async def simulate_operators(doorstep: Doorstep, bills: Pipeline) -> None:
    """Perform the actions in turn until cancelled. An action that is currently not possible is skipped."""
    operators = Operators(doorstep, bills, await ensure_keys(doorstep))
    for action in cycle(operators.actions()):
        await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.7, 1.3))
        with suppress(DoorstepError):
            await operators.review()
            await action()


class Operators:
    def __init__(self, doorstep: Doorstep, bills: Pipeline, actors: Actors) -> None:
        self._doorstep = doorstep
        self._bills = bills
        self._admin, self._operator = actors
        self._endpoints = doorstep.components.endpoints
        self._deliveries = doorstep.components.deliveries
        self._alerts = doorstep.components.alerts

    def actions(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        """All actions, in the order in which the operators cycle through them."""
        return (
            self._retry_corrected,
            self._acknowledge,
            self._resubmit,
            self._retry_invoices,
            self._clear_bills,
            self._resolve,
            self._silence,
            self._pause,
            self._resolve_stock,
            self._change_concurrency,
            self._clear_bills,
            self._resume,
            self._test,
            self._replay,
        )

    # -- dead letters --------------------------------------------------------------------------------------

    async def _retry_corrected(self) -> None:
        letter, payload = await self._dead_letter(ACCOUNTING)
        corrected = json.dumps({**json.loads(payload), "vat_number": "DE811907980"}).encode()
        reason = "The VAT number was missing."
        await self._deliveries.act_on(ActionKind.RETRY, DEFAULT_ORG, letter, self._operator, reason, corrected)

    async def _resolve(self) -> None:
        letter, _ = await self._dead_letter(MARKETPLACE)
        reason = "Entered by hand on their website."
        await self._deliveries.act_on(ActionKind.RESOLVE, DEFAULT_ORG, letter, self._operator, reason)

    async def _retry_invoices(self) -> None:
        chosen = Selection(letters=DeadLetterFilter(endpoint_id=await id_of(self._doorstep, ACCOUNTING)))
        await self._bulk(BulkKind.RETRY, chosen, "They have relaxed their rules.", rate_per_second=0.5)

    async def _resolve_stock(self) -> None:
        """Resolve all but the newest dead letters, so that visitors have some to look at."""
        now = self._doorstep.clock.now()
        letters = DeadLetterFilter(endpoint_id=await id_of(self._doorstep, ERP), died_before=now - 60 * SECOND)
        await self._bulk(BulkKind.RESOLVE, Selection(letters=letters), "Part of the nightly file.")

    async def _replay(self) -> None:
        since = self._doorstep.clock.now() - 120 * SECOND
        events = EventFilter(event_type="order.shipped", created_from=since)
        target = await id_of(self._doorstep, STOREFRONT)
        await self._bulk(BulkKind.REPLAY, Selection(events=events), "Their page was outdated.", endpoint_id=target)

    # -- batches and bills ---------------------------------------------------------------------------------

    async def _resubmit(self) -> None:
        """Resubmit a failed batch. Batches with invalid numbers are not resubmitted, because they would fail again."""
        for batch in (await self._doorstep.batches.list(BatchStatus.FAILED)).items:
            if batch.error_code != Code.INVALID_FORMAT:
                await self._doorstep.batches.resubmit(batch.batch_id, self._operator, "The carrier is back.")
                return

    async def _clear_bills(self) -> None:
        """Retry or delete the oldest rejected bill, unless it is the only rejected bill."""
        for bill in (await self._bills.list(self._bills.plan.dead)).items[1:][-1:]:
            if bill.data["scan"] == BLANK or "order" in bill.data:
                await self._bills.delete(bill.entity_id, self._operator, "There is nothing to pay.")
            else:
                await self._bills.retry(bill.entity_id, self._operator, "The order has arrived.")

    async def review(self) -> None:
        """Approve or reject the oldest waiting bill, if several are waiting."""
        waiting = (await self._bills.list(GATE)).items
        if len(waiting) > _WAITING_MIN:
            if random.random() < _REJECTED_SHARE:
                await self._bills.reject(waiting[-1].entity_id, self._operator, "Paid already.", gate=GATE)
            else:
                await self._bills.approve(waiting[-1].entity_id, self._operator, gate=GATE)

    # -- endpoints -----------------------------------------------------------------------------------------

    async def _change_concurrency(self) -> None:
        changes = {"concurrency_max": random.choice((8, 16, 32))}
        await self._endpoints.update(DEFAULT_ORG, await id_of(self._doorstep, WAREHOUSE), changes, self._admin)

    async def _pause(self) -> None:
        await self._endpoints.pause(DEFAULT_ORG, await id_of(self._doorstep, WAREHOUSE), self._operator, "Stocktaking.")

    async def _resume(self) -> None:
        await self._endpoints.resume(
            DEFAULT_ORG, await id_of(self._doorstep, WAREHOUSE), self._operator, drain_per_second=2
        )

    async def _test(self) -> None:
        endpoint_id = await id_of(self._doorstep, MARKETPLACE)
        await self._doorstep.components.events.test(DEFAULT_ORG, endpoint_id, self._admin, new_correlation_id())

    # -- alerts --------------------------------------------------------------------------------------------

    async def _acknowledge(self) -> None:
        alerts = await self._alerts.alerts(DEFAULT_ORG, AlertFilter(is_open=True), None, 50)
        for alert in [one for one in alerts.items if one.acknowledged_at is None][-1:]:
            await self._alerts.acknowledge(DEFAULT_ORG, alert.alert_id, self._operator, "On it.")

    async def _silence(self) -> None:
        until = self._doorstep.clock.now() + _SILENCE_SECONDS * SECOND
        await self._alerts.silence(
            DEFAULT_ORG,
            self._admin,
            until_at=until,
            endpoint_id=await id_of(self._doorstep, MARKETPLACE),
            rule=Rule.FAILURE_RATE,
            reason="They are renewing our token today.",
        )

    # -- helpers -------------------------------------------------------------------------------------------

    async def _dead_letter(self, sample: Sample) -> tuple[UUID, bytes]:
        """The newest dead letter of an endpoint, and its payload."""
        letters = DeadLetterFilter(endpoint_id=await id_of(self._doorstep, sample))
        page, _ = await self._doorstep.components.reader.dead_letters(DEFAULT_ORG, letters, None, 1)
        for letter in page.items:
            return letter.delivery_id, bytes((await self._doorstep.event(letter.event_id)).payload_json)
        raise NotFound(f"{sample.name} has no dead letters")

    async def _bulk(self, kind: BulkKind, selection: Selection, reason: str, **options: Any) -> None:
        """Start a bulk operation, unless nothing is selected."""
        service = self._doorstep.components.bulk
        if (await service.preview(DEFAULT_ORG, selection, options.get("endpoint_id"))).count.value:
            await service.start(kind, DEFAULT_ORG, selection, self._operator, reason=reason, **options)
