"""Proof that the checker can fail: it finds each deliberately broken store or worker within a few hundred seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from doorstep.services.worker import Worker
from tests.reference import ReferenceStore
from tests.simulation import sabotage
from tests.simulation.checker import check
from tests.simulation.nemesis import disturb
from tests.simulation.scenario import draw
from tests.simulation.world import World

pytestmark = pytest.mark.full

_SEEDS_MAX = 500

BROKEN_STORES: dict[type[ReferenceStore], tuple[str, str]] = {
    sabotage.SettlesWithoutToken: ("claims_are_fenced_and_counted", "which no longer holds the delivery"),
    sabotage.CountsAtSettle: ("everything_ends", "after everything was healed"),
    sabotage.AcknowledgesBeforeKeeping: ("nothing_acknowledged_is_lost", "was acknowledged and is not kept"),
    sabotage.AcceptsClaimsWithoutALease: ("everything_ends", "is still in_progress"),
    sabotage.AcceptsClaimsUncounted: ("claims_are_fenced_and_counted", "is attempt 0, but 0 were made before it"),
    sabotage.AcceptsClaimsWithoutAToken: ("claims_are_fenced_and_counted", "does not grow"),
    sabotage.ReleaseBurnsAnAttempt: ("claims_are_fenced_and_counted", "were made before it"),
    sabotage.ReleaseForgetsAnAttempt: ("claims_are_fenced_and_counted", "were made before it"),
    sabotage.RenewsTheLeasesOfOthers: ("claims_are_fenced_and_counted", "renewed a lease that it did not hold"),
    sabotage.LeasesNeverEnd: ("everything_ends", "is still in_progress"),
    sabotage.ReclaimsTooEarly: ("claims_are_fenced_and_counted", "before its lease had ended"),
    sabotage.ForgetsIdempotencyKeys: ("one_sending_is_one_event", "became 2 events"),
    sabotage.ChangesTheBytes: ("nothing_is_invented", "bytes that nobody sent"),
    sabotage.KeepsNoLateRows: ("late_results_are_kept", "its log has 0"),
    sabotage.ForgetsTheOrder: ("the_order_is_kept", "had not ended"),
    sabotage.RetriesHoldUpNobody: ("the_order_is_kept", "had not ended"),
    sabotage.LeavesTheBlockedBehind: ("everything_ends", "is still pending"),
    sabotage.CountsLateResultsAsSuccesses: ("figures_agree_with_the_rows", "succeeded of org"),
}

BROKEN_WORKERS: dict[Callable[..., Worker], tuple[str, str]] = {
    sabotage.drops_results_when_the_store_is_away: ("nobody_is_lost_without_cause", "was never settled"),
    sabotage.begins_tries_past_their_lease: ("no_try_outlasts_its_lease", "after its lease"),
    sabotage.forgets_what_it_accepts_when_stopped: ("nobody_is_lost_without_cause", "was never settled"),
    sabotage.leaves_its_claims_when_stopped: ("nobody_is_lost_without_cause", "was never settled"),
}
"""For each break, the violated promise, and words that the checker must report to prove that it found this break."""

FIRST_SEEDS: dict[object, int] = {sabotage.ReleaseForgetsAnAttempt: 155, sabotage.begins_tries_past_their_lease: 105}
"""First seeds for breaks that only one seed in a hundred reveals. If one stops working, the search goes on."""


@pytest.mark.parametrize("broken", BROKEN_STORES, ids=lambda broken: broken.__name__)
def test_a_broken_store_is_found_out(broken: type[ReferenceStore]) -> None:
    _find_out(broken, BROKEN_STORES[broken], lambda seed: World(seed, draw(seed), store=broken()))


@pytest.mark.parametrize("broken", BROKEN_WORKERS, ids=lambda broken: broken.__name__)
def test_a_broken_worker_is_found_out(broken: Callable[..., Worker]) -> None:
    _find_out(broken, BROKEN_WORKERS[broken], lambda seed: World(seed, draw(seed), make_worker=broken))


def _find_out(broken: object, sign: tuple[str, str], world: Callable[[int], World]) -> None:
    """Try seeds until the checker reports this promise as broken, in these words."""
    promise, words = sign
    first = FIRST_SEEDS.get(broken, 0)
    for seed in range(first, first + _SEEDS_MAX):
        found = check(world(seed).play(disturb))
        if any(words in breach for breach in found.get(promise, ())):
            print(f"{promise}: found out by seed {seed}, after {seed - first + 1}")
            return
    raise AssertionError(f"not found out by {_SEEDS_MAX} seeds")
