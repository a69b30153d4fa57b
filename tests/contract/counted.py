"""Counts again what a store counts, from the answers that the store gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from doorstep.model.claim import Moved, Settled, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus, Receipt, Verdict
from doorstep.model.inbox import InboxAnswered
from doorstep.model.rollup import Figures


class Counted:
    def __init__(self) -> None:
        self.tried = 0
        """Settlements passed to the store, late or not."""
        self._seen: Counter[str] = Counter()

    def add(self, answer: Any) -> None:
        match answer:
            case [Receipt(), *_]:
                new = [one for one in answer if one.verdict is Verdict.ACCEPTED and not one.known]
                self._seen.update(created=len(new), deliveries=sum(one.deliveries for one in new))
            case Settled():
                self._seen.update(late=len(answer.late))
                self._add_changes(answer.changes)
            case Moved():
                self._seen.update(moved_dead=sum(move.new_state is DeliveryState.DEAD for move in answer.moves))
                self._add_changes(answer.changes)
                if any(move.new_state is DeliveryState.CANCELLED for move in answer.moves):
                    ended = sum(change.new_status is EventStatus.FAILED for change in answer.changes)
                    self._seen.update(perhaps_called_off=ended)
            case InboxAnswered():
                self._add_changes(answer.changes)
            case tuple():
                for one in answer:
                    self.add(one)

    def check(self, totals: Figures) -> None:
        """Check that the figures of the whole store agree."""
        seen = self._seen
        for name in ("created", "deliveries", "late", "delivered"):
            assert getattr(totals, name) == seen[name], name
        assert seen["failed"] - seen["perhaps_called_off"] <= totals.failed <= seen["failed"]
        assert totals.attempts == self.tried - seen["late"]
        assert totals.dead == totals.died + seen["moved_dead"]
        assert sum(totals.ttd) == totals.succeeded
        assert sum(totals.retries) == totals.succeeded + totals.died

    def _add_changes(self, changes: Iterable[StatusChange]) -> None:
        self._seen.update(change.new_status.value for change in changes if change.new_status is not change.old_status)
