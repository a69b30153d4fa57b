"""What every way of reaching a receiver has in common: transmissions go in, replies come out, in batches.

A transport never raises for what a receiver does: refusals, timeouts and nonsense come back as a Reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from doorstep.model.attempt import Reply
from doorstep.model.claim import Claim


class Transmission(NamedTuple):
    """One try, ready to go."""

    claim: Claim
    target: str
    """The URL, or the name of the registered handler."""
    headers: tuple[str, ...]
    """`Name: value` lines as they are sent, the signature included. A handler is given what they say of the trace."""
    logged_headers: bytes
    """The same for the attempt log, one a line, with the values of secret ones masked."""
    timeout_seconds: float
    """For the whole attempt, from the first byte of DNS to the last byte of the body."""


Done = Callable[[Sequence[tuple[Transmission, Reply]]], None]


class Transport(Protocol):
    def open(self, done: Done) -> None:
        """Start; `done` is called on the running event loop, with as many replies as have come together."""

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Begin these tries and return at once. Each of them ends in exactly one reply given to `done`."""

    def serves(self, target: str, org_id: UUID) -> bool:
        """Whether this worker can try this target at all for an organization; what it cannot is left to others."""

    def places(self, target: str) -> int | None:
        """How many tries to this target it can have under way at once; None where it sets no limit of its own."""

    async def close(self) -> None:
        """Stop. Tries still running are cut off and no longer reported."""
