"""The comparison of two revisions reports a real difference and does not mistake noise for a difference."""

from __future__ import annotations

import pytest

from bench.against.__main__ import parse, summary
from bench.against.measurements import MEASUREMENTS, select
from bench.against.ratios import Comparison, Pair, Verdict, pairs_needed


def compared(*ratios: float, name: str = "accept-batch") -> Comparison:
    return Comparison(name, "µs/event", [Pair(20.0, 20.0 * ratio) for ratio in ratios])


def test_the_ratio_is_the_median_so_that_one_disturbed_slice_changes_nothing() -> None:
    quiet = compared(1.00, 1.01, 0.99, 1.00, 1.00)
    disturbed = compared(1.00, 1.01, 0.99, 1.00, 9.00)
    assert quiet.ratio == disturbed.ratio == 1.00


def test_the_spread_is_the_middle_half_and_the_extremes() -> None:
    line = str(compared(0.8, 0.9, 1.0, 1.1, 1.3))
    assert "×1.000" in line
    assert "middle half 0.900–1.100, all 0.800–1.300" in line
    assert "20.00 →     20.00 µs/event" in line


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.05] * 10, Verdict.SLOWER),
        ([1.05] * 9 + [0.9], Verdict.SLOWER),
        ([1.05] * 8 + [0.9] * 2, Verdict.SAME),
        ([0.95] * 10, Verdict.FASTER),
        ([0.95] * 9 + [1.1], Verdict.FASTER),
        ([1.0] * 10, Verdict.SAME),
        ([1.3, 0.8] * 5, Verdict.SAME),
        ([1.019] * 10, Verdict.SAME),  # within the tolerance
        ([2.0] * 5, Verdict.UNKNOWN),
    ],
)
def test_a_difference_needs_nine_of_ten_pairs_and_more_than_the_tolerance(
    ratios: list[float], verdict: Verdict
) -> None:
    assert compared(*ratios).verdict is verdict


def test_how_many_pairs_must_agree_is_what_chance_does_in_less_than_a_twentieth_of_all_runs() -> None:
    assert {pairs: pairs_needed(pairs) for pairs in (1, 5, 6, 10, 20)} == {1: None, 5: None, 6: 6, 10: 9, 20: 15}


def test_the_summary_names_what_is_slower_first() -> None:
    same, slower = compared(*[1.0] * 10, name="idle"), compared(*[1.5] * 10, name="steady")
    assert summary([same, slower]) == "SLOWER: steady; no difference: idle"


def test_measurements_are_selected_by_name_or_by_the_first_word_of_it() -> None:
    assert [one.name for one in select(["start-help", "accept"])] == ["accept-batch", "accept-single", "start-help"]
    assert select([]) == list(MEASUREMENTS)


def test_the_command_line_has_defaults_for_all_but_the_ref() -> None:
    options = parse(["main~20"])
    assert (options.ref, options.here, options.store, options.pairs) == ("main~20", "HEAD", "sqlite", 10)
    assert options.only == list(MEASUREMENTS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: ref"),
        (["main", "--only", "accept", "speed"], "no measurement 'speed'; there are accept-batch, accept-single,"),
        (["main", "--pairs", "0"], "--pairs must be at least 1, got 0"),
        (["main", "--store", "oracle"], "invalid choice: 'oracle'"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_sentence(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
    assert complaint in capsys.readouterr().err
