"""The audit lines of the reference model."""

from __future__ import annotations

from collections.abc import Iterator

from doorstep.model.action import AuditEntry


class AuditLog:
    """Lines in the order of writing, each with a number that no other line ever has: its place in the list."""

    def __init__(self) -> None:
        self._lines: dict[int, AuditEntry] = {}
        self._last = 0

    def __iter__(self) -> Iterator[AuditEntry]:
        return iter(self._lines.values())

    def append(self, line: AuditEntry) -> None:
        self._last += 1
        self._lines[self._last] = line

    def remove(self, line: AuditEntry) -> None:
        """The first that is equal."""
        del self._lines[next(number for number, kept in self._lines.items() if kept == line)]

    def numbered(self) -> list[tuple[int, AuditEntry]]:
        return list(self._lines.items())
