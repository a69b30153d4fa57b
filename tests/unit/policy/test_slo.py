"""Targets: lost deliveries count against an error budget, and recent losses determine the burn rate."""

from __future__ import annotations

import pytest

from doorstep.model.endpoint import Slo
from doorstep.model.rollup import FIGURES, TTD_SECONDS, Figures, only
from doorstep.policy.reports import BUDGET_FIGURES, BURN_FIGURES, against, burn, slo_of
from doorstep.schemas.endpoints import P95_SECONDS
from tests.support.builders import an_endpoint, an_org
from tests.support.matrix import each_case

TARGET = Slo(success=0.99, p95_seconds=10)


def test_the_most_specific_target_counts() -> None:
    own, orgs = Slo(success=0.9), Slo(success=0.95)
    org = an_org()
    assert slo_of(an_endpoint(org.org_id, slo=own), an_org(slo=orgs)) == own
    assert slo_of(an_endpoint(org.org_id), an_org(slo=orgs)) == orgs
    assert slo_of(an_endpoint(org.org_id), org) == slo_of(an_endpoint(org.org_id), None) == Slo()


@each_case(
    ("lost", "left"), [(0, 1.0), (1, 0.9), (10, 0.0), (20, -1.0)], ids=["whole", "a tenth used", "used up", "overdrawn"]
)
def test_the_budget_is_the_share_of_deliveries_that_may_be_lost(lost: int, left: float) -> None:
    report = against(TARGET, Figures(succeeded=1_000 - lost, dead=lost), {})
    assert report.budget_left == pytest.approx(left)
    assert report.met == (lost <= 10)


def test_a_burn_of_one_loses_exactly_what_the_target_allows() -> None:
    assert burn(TARGET, Figures(succeeded=99, dead=1)) == pytest.approx(1.0)
    assert burn(TARGET, Figures(succeeded=86, dead=14)) == pytest.approx(14.0)
    assert burn(TARGET, Figures(retried=5)) is None, "nothing has ended"


def test_nothing_is_looked_at_but_the_figures_that_are_said_to_be() -> None:
    every = Figures(*range(1, len(FIGURES) + 1))
    chosen = against(TARGET, only(BUDGET_FIGURES, every), {"1h": only(BURN_FIGURES, every)})
    assert chosen == against(TARGET, every, {"1h": every})


def test_each_burn_window_is_judged_by_itself() -> None:
    recent = {"1h": Figures(dead=1), "6h": Figures(succeeded=1), "3d": Figures()}
    assert against(TARGET, Figures(), recent).burn == {"1h": pytest.approx(100.0), "6h": 0.0, "3d": None}


def test_slow_deliveries_miss_the_target_though_all_arrive() -> None:
    quick = against(TARGET, Figures(succeeded=100, ttd_9=100), {})
    slow = against(TARGET, Figures(succeeded=100, ttd_9=90, ttd_13=10), {})
    assert quick.met and not slow.met
    assert slow.p95_seconds is not None and slow.p95_seconds > 60


@each_case(("beyond", "met"), [(0, True), (5, True), (6, False), (100, False)])
def test_the_longest_target_that_may_be_said_can_be_seen_to_be_missed(beyond: int, met: bool) -> None:
    """The longest target is the bound of the last bucket; longer times are counted, but their length is unknown."""
    figures = Figures(succeeded=100, ttd_19=100 - beyond, ttd_20=beyond)
    report = against(Slo(p95_seconds=P95_SECONDS[1]), figures, {})
    assert P95_SECONDS[1] == TTD_SECONDS[-1] == 3 * 86_400
    assert report.met == met


def test_one_that_has_waited_too_long_misses_the_target_whatever_the_others_did() -> None:
    target = Slo(oldest_seconds=60)
    assert against(target, Figures(succeeded=1), {}, 60.0).met
    assert not against(target, Figures(succeeded=1), {}, 60.1).met


def test_an_endpoint_that_nothing_went_to_meets_its_target() -> None:
    report = against(TARGET, Figures(), {})
    assert report.met and report.success_rate is None and report.budget_left is None
