"""python -m tests.simulation --seed N [--trace]: run one seed again, or search many for a failing one."""

from __future__ import annotations

import argparse
import time

from tests.simulation.run import simulate, verdict
from tests.simulation.scenario import draw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the seed to run, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    arguments = parser.parse_args()
    failed, began = 0, time.process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        failed += _run(seed, arguments.trace)
    took = time.process_time() - began
    print(f"{arguments.count} seeds, {failed} failed, {arguments.count / took:.0f} seeds a second of CPU")
    return min(failed, 1)


def _run(seed: int, trace: bool) -> bool:
    story = simulate(seed)
    if trace:
        print(draw(seed), *story.trace.lines(), sep="\n")
    problem = verdict(story)
    if problem:
        print(problem)
    return problem is not None


raise SystemExit(main())
