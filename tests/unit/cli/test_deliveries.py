"""How `doorstep deliveries` shows what the API returns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from doorstep.cli.events import note_with_holds
from doorstep.schemas.deliveries import PastHold, Transition

_AT = datetime(2026, 11, 19, 12, 0, 0, 1, tzinfo=UTC)


def _claimed(*holds: PastHold) -> Transition:
    return Transition(_AT, "pending", "in_progress", 1, "claimed by web-1", holds)


def test_the_history_says_for_how_long_and_by_what_a_delivery_was_held() -> None:
    hold = PastHold(_AT - timedelta(seconds=90), _AT, "The endpoint was paused (tea).")
    assert note_with_holds(_claimed(hold)) == "claimed by web-1; held for 1 min 30 s: The endpoint was paused (tea)."
    assert note_with_holds(_claimed()) == "claimed by web-1"
