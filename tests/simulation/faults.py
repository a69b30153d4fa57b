"""Faults of a store: calls that fail, and calls that succeed although their answer is lost."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Protocol


class Fault(StrEnum):
    BEFORE = "before"
    """The call never reaches the store."""
    AFTER = "after"
    """The store executes the call, but the caller never receives the answer."""


class Faults(Protocol):
    def strikes(self, verb: str) -> Fault | None:
        """The fault of the next call, or None. Ask exactly once per call, in the order of the calls."""


class NoFaults:
    def strikes(self, verb: str) -> Fault | None:
        return None


class RandomFaults:
    """Each call fails with the given probability, in one of the two ways."""

    def __init__(self, random: Random, rate: float) -> None:
        self._random = random
        self._rate = rate

    def strikes(self, verb: str) -> Fault | None:
        if self._random.random() >= self._rate:
            return None
        return Fault.BEFORE if self._random.random() < 0.5 else Fault.AFTER


class NthFault:
    """Only the n-th call of one store method fails."""

    def __init__(self, verb: str, n: int, fault: Fault) -> None:
        self._verb = verb
        self._left = n
        self._fault = fault
        self.struck = False

    def strikes(self, verb: str) -> Fault | None:
        if verb != self._verb:
            return None
        self._left -= 1
        self.struck = self.struck or self._left == 0
        return self._fault if self._left == 0 else None
