"""What every chapter of verbs is on top of: the two ways in which a SQL store runs a script, and how it tells of postings.

`scope` is the organization that a script is about: PostgreSQL lets it see no other's rows. None sees all, for verbs of
the engine itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

from doorstep.stores.sql.queries.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")


class Scripted(ABC):
    """What a store gives to its verbs."""

    @abstractmethod
    async def _read(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a script that changes nothing, in one consistent picture of the data."""

    @abstractmethod
    async def _write(
        self, scope: UUID | None, script: Callable[P, Transaction[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a script in a transaction; when this returns, what it did is on stable storage."""

    @abstractmethod
    def tell_posted(self) -> None:
        """There is something new in the outbox."""
