"""The nemesis: chooses faults from a seed, injects them one after another, and records each one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from tests.faults.harness.databases import Hurt
from tests.faults.harness.evidence import Fault
from tests.faults.harness.installation import LEASE_SECONDS, Installation
from tests.faults.harness.processes import KeptProcess

_PAUSE_SECONDS = (0.2, 1.5)
"""The pause between two faults. Before every other fault the nemesis also waits until the system is ready, so that
faults hit both recovery and full operation."""


class Nemesis:
    """The same seed chooses the same faults in the same order; their timing depends on the machine."""

    def __init__(self, faults: Mapping[str, Hurt], seed: int, await_calm: Callable[[], object]) -> None:
        self._faults = dict(faults)
        self._await_calm = await_calm
        self._random = random.Random(seed)
        self.done: list[Fault] = []

    def rage(self, seconds: float) -> None:
        """Inject faults for this many seconds: first one of each in a seeded order, then random ones."""
        deadline = time.monotonic() + seconds
        names = self._random.sample(sorted(self._faults), len(self._faults))
        while names or time.monotonic() < deadline:
            if self._faults:
                self.strike(names.pop() if names else self._random.choice(sorted(self._faults)))
            time.sleep(self._random.uniform(*_PAUSE_SECONDS))
            if len(self.done) % 2:
                self._await_calm()
                time.sleep(self._random.uniform(*_PAUSE_SECONDS))

    def strike(self, name: str) -> None:
        self.done.append(Fault(time.time(), name))
        self._faults[name](self._random)


def kills(installation: Installation) -> dict[str, Hurt]:
    """A kill -9 for each process, including the workers that the server started."""
    hurts: dict[str, Hurt] = {f"kill {process.name}": _killing(process) for process in installation.everyone}
    if installation.server.children:
        hurts["kill a child of serve"] = lambda chance: _kill_child(installation.server, chance)
    return hurts


def pauses(installation: Installation) -> dict[str, Hurt]:
    """Stop each Doorstep process past its lease, then resume it: a zombie that still relies on its claims."""
    return {f"pause {process.name}": _pausing(process) for process in installation.engines}


def _killing(process: KeptProcess) -> Hurt:
    return lambda _: process.kill()


def _pausing(process: KeptProcess) -> Hurt:
    def hurt(chance: random.Random) -> None:
        process.pause()
        time.sleep(LEASE_SECONDS + chance.uniform(0.5, 1.5))
        process.resume()

    return hurt


def _kill_child(process: KeptProcess, chance: random.Random) -> None:
    if children := process.children:
        chance.choice(children).kill()
