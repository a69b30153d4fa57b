"""The journal: every change that the store made, in order, derived from the deliveries before and after each call.

The journal is not part of the store, so a broken store cannot hide its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import Action
from doorstep.model.claim import Claim, Settlement
from doorstep.model.delivery import Delivery
from doorstep.model.event import Submission
from tests.reference import ReferenceStore


class Step(NamedTuple):
    """One store method changed one delivery, or refused to change it."""

    at: Instant
    """In simulated time."""
    now: Instant
    """By the caller's clock."""
    by: str
    verb: str
    delivery_id: UUID
    before: Delivery | None
    after: Delivery | None
    token: int | None = None
    late: bool = False
    heard: bool = True
    """Whether the caller received the answer."""
    claim: Claim | None = None
    settlement: Settlement | None = None


class Journal:
    def __init__(self, store: ReferenceStore) -> None:
        self._store = store
        self._rows = store._tables.deliveries
        self.steps: list[Step] = []
        self.submissions: list[Submission] = []
        """Every submission that reached the store, whether the store kept it or not."""
        self.known: dict[UUID, Delivery] = {}
        """Every delivery as it was last seen."""
        self._snapshot: dict[UUID, Delivery] = {}

    def prepare(self, verb: str) -> None:
        """Call this before a method is executed. Some methods do not return what they have changed."""
        if verb in ("renew_leases", "shift_waits"):
            self._snapshot = {delivery_id: row.delivery for delivery_id, row in self._rows.items()}

    def record(self, at: Instant, by: str, heard: bool, verb: str, args: Sequence[Any], result: Any) -> None:
        """Record the effect of a call. Methods that change no delivery are not recorded."""
        note = getattr(self, f"_{verb}", None)
        if note is not None:
            # If one call has two results for a delivery, the change belongs to the result that was not late.
            for now, delivery_id, extra in sorted(note(args, result), key=lambda touch: touch[2].get("late", False)):
                before = extra.pop("before", self.known.get(delivery_id))
                row = self._rows.get(delivery_id)
                after = row.delivery if row else None
                if after is not None:
                    self.known[delivery_id] = after
                self.steps.append(Step(at, now, by, verb, delivery_id, before, after, heard=heard, **extra))
        if verb == "accept" and (claims := [claim for receipt in result for claim in receipt.claims]):
            self.record(at, by, heard, "claim", args[1:], claims)

    # -- one per store method: the deliveries that it touched ----------------------------------------------

    def _accept(self, args: Sequence[Any], result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        submissions: Sequence[Submission] = args[0]
        self.submissions.extend(submissions)
        for submission in submissions:
            for delivery in submission.deliveries:
                yield args[2], delivery.delivery_id, {}

    def _claim(self, args: Sequence[Any], result: list[Claim]) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        for claim in result:
            yield args[1], claim.delivery_id, {"token": claim.token, "claim": claim}

    def _settle(self, args: Sequence[Any], result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        late = list(result.late)
        for settlement in args[0]:
            claim = settlement.claim
            was_late = claim in late
            if was_late:
                late.remove(claim)
            yield args[1], claim.delivery_id, {"token": claim.token, "late": was_late, "settlement": settlement}

    def _release(self, args: Sequence[Any], result: list[Claim]) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        for claim in args[0]:
            yield args[1], claim.delivery_id, {"token": claim.token, "late": claim not in result, "claim": claim}

    def _act(self, args: Sequence[Any], result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        act: Action = args[0]
        for delivery_id in result[0].done:
            yield act.at, delivery_id, {}

    def _expire(self, args: Sequence[Any], result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        for delivery_id in result.delivery_ids:
            yield args[3], delivery_id, {}

    def _renew_leases(self, args: Sequence[Any], _result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        return self._changed(args[1])

    def _shift_waits(self, args: Sequence[Any], _result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        return self._changed(args[0])

    def _changed(self, now: Instant) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        for delivery_id, before in self._snapshot.items():
            if before != self._rows[delivery_id].delivery:
                yield now, delivery_id, {"before": before}

    def _dead_letter_waiting(self, args: Sequence[Any], result: Any) -> Iterable[tuple[Instant, UUID, dict[str, Any]]]:
        for delivery_id in result.delivery_ids:
            yield args[3], delivery_id, {}
