"""The path of an event through the store: the verbs that carry the guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import Claim, Lane, Quota, Settled, Settlement
from doorstep.model.event import Receipt, Submission


class PathStore(Protocol):
    """Accepting, claiming, settling. Read first what holds for all verbs: stores/store.py."""

    async def accept(self, submissions: Sequence[Submission], routing_version: int, now: Instant) -> list[Receipt]:
        """Keep events with their deliveries and idempotency keys, durably; one receipt each, in order.

        Raises StaleRouting, keeping nothing, if endpoints changed since `routing_version` was read. An
        idempotency key counts for 24 hours from `now` within its organization; two submissions of one call may
        share one. REPEATED and CONFLICT receipts carry the figures of the first event, even when that has been
        cleaned away meanwhile. An event id that is already kept is answered ACCEPTED and `known`, and adds
        nothing, so a caller that lost the answer may repeat the call. A delivery's `created_at` is that of its event.
        """

    async def lanes(self, now: Instant) -> list[Lane]:
        """One lane for each endpoint that has waiting deliveries, due or not, in the order of their due times.

        What is blocked does not count. Endpoints in every state are among them; a lane carries the stored circuit,
        where there is one. Costs one index seek an endpoint, however many deliveries wait behind it.
        """

    async def claim_due(
        self,
        quotas: Sequence[Quota],
        now: Instant,
        lease_until: Instant,
        worker: str,
        forced_max: int = 0,
        unserved: Sequence[UUID] = (),
    ) -> list[Claim]:
        """Take due deliveries, oldest first within each quota, after up to `forced_max` forced ones.

        Forced deliveries (an operator's retry) are taken whatever the quotas say, as long as their endpoint is
        active and not `unserved` (one that this worker cannot reach, because it lacks the handler); they count as in
        flight, but not for the rate. Nothing else is taken from an endpoint without a
        quota. "Oldest" is by due time, then by creation. A quota's `concurrency_max` bounds all that is in progress
        for its endpoint, whoever holds it; the rate is stores/limits.py, its `bytes_max` stores/limits.py.

        A claim counts an attempt, takes the next token (one that no claim of the delivery ever had), is due again
        at `lease_until`, and has used `attempt - 1` retries since the round began, at most `retries_max`. The event
        goes from received to queued; of its deliveries claimed together only the first is `picked_up`.
        """

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        """Write the results of claims: attempt row, new state, event status and history, together.

        A settlement whose token is no longer the newest, or whose delivery is no longer in progress, is late:
        its attempt row is kept (marked late, with no next retry) and nothing else changes. The same claim twice in
        one call is settled by the first and late by the second. Of a delivery that has been cleaned away no row is
        kept, but it is reported late.

        Every result ends the claim (`claimed_at`, `worker` and `forced` are cleared) and sets `last_attempt_at` to
        the end of the reply and `response_code` to its status. A failure keeps category, code and reason, sets
        `first_failed_at` once, and a retry takes over the settlement's `retries_max`. Success clears category, code
        and reason. Delivered and dead are `settled_at` now. An event has at most one StatusChange a call, with the
        highest `retry_attempts` of its deliveries in that call.
        """

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        """Hand back claims that were never tried: due again at once, attempt uncounted. Returns the released.

        The event stays queued: it was picked up. The token stays used, a forced delivery stays forced. A claim
        that is no longer the newest or no longer in progress is left alone.
        """

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        """Claims whose lease has ended (`lease_until` <= now) unsettled, oldest first: their workers are lost or stuck.

        They carry the token that they hold, so that whoever settles them on their behalf fences the lost worker, how
        the try before failed (`last_code`), and no payload (b""), which nobody needs for that.
        """
