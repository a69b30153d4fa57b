"""A disk that forgets: computes what is left of recorded writes when the power fails between two of them.

Only synced data is certain. Each other write is randomly kept, lost or torn; changes of names are kept up to a random
point. If a sync fails, the data that it should have covered is never written. Linux behaves like that: after a failed
sync, a later successful sync proves nothing about the earlier data.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.faults.harness.recording import Created, Removed, Step, Synced, Truncated, Written

_SECTOR = 512


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Written | Truncated] = field(default_factory=list)


class ForgetfulDisk:
    """One folder. `apply` replays the recorded steps; `after_power_cut` returns the files that would be left."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._renamings: list[tuple[str, _File | None]] = []

    def apply(self, step: Step) -> None:
        match step:
            case Created(name) if name not in self._names:
                self._rename(name, _File())
            case Removed(name):
                self._rename(name, None)
            case Written() | Truncated():
                self._names[step.name].pending.append(step)
            case Synced("", succeeded):
                self._sync_names(succeeded)
            case Synced(name, succeeded):
                self._sync(self._names[name], succeeded)

    def after_power_cut(self, chance: random.Random) -> dict[str, bytes]:
        """The files that are found when the power is back."""
        kept = self._renamings[: chance.randint(0, len(self._renamings))]
        names = _renamed(self._durable_names, kept)
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        return {name: _found(file, share, chance) for name, file in names.items()}

    def _rename(self, name: str, file: _File | None) -> None:
        self._renamings.append((name, file))
        self._names = _renamed(self._names, [(name, file)])

    def _sync_names(self, succeeded: bool) -> None:
        if succeeded:
            self._durable_names = _renamed(self._durable_names, self._renamings)
            self._renamings.clear()

    @staticmethod
    def _sync(file: _File, succeeded: bool) -> None:
        if succeeded:
            for step in file.pending:
                _write(file.durable, step)
        file.pending.clear()


def _renamed(names: dict[str, _File], renamings: list[tuple[str, _File | None]]) -> dict[str, _File]:
    result = names | {name: file for name, file in renamings if file is not None}
    last = dict(renamings)
    return {name: file for name, file in result.items() if last.get(name, file) is not None}


def _found(file: _File, share: float, chance: random.Random) -> bytes:
    content = bytearray(file.durable)
    for step in file.pending:
        if chance.random() < share:
            _write(content, _torn(step, chance) if share < 1 else step)
    return bytes(content)


def _torn(step: Written | Truncated, chance: random.Random) -> Written | Truncated:
    """Cut one write in ten at a sector boundary."""
    if isinstance(step, Truncated) or chance.random() > 0.1:
        return step
    sectors = len(step.data) // _SECTOR
    return step._replace(data=step.data[: chance.randint(0, sectors) * _SECTOR])


def _write(content: bytearray, step: Written | Truncated) -> None:
    if isinstance(step, Truncated):
        del content[step.size :]
        content.extend(bytes(step.size - len(content)))
        return
    content.extend(bytes(max(0, step.offset - len(content))))
    content[step.offset : step.offset + len(step.data)] = step.data
