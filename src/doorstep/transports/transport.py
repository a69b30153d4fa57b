"""The interface of all transports.

Transports take transmissions and report replies, in batches. A transport never raises an error because of a receiver:
rejections, timeouts and invalid responses become a Reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from doorstep.model.attempt import Reply
from doorstep.model.claim import Claim

BODY_BYTES_MAX = 16_384
"""How much of a response is kept for the attempt log."""


class Transmission(NamedTuple):
    """One attempt, ready to be sent."""

    claim: Claim
    target: str
    """The URL, or the name of the registered handler."""
    headers: tuple[str, ...]
    """`Name: value` lines as they are sent, including the signature. A handler receives the trace context from them."""
    logged_headers: bytes
    """The same headers for the attempt log, one per line, with secret values masked."""
    timeout_seconds: float
    """The limit for the whole attempt, from the DNS lookup to the last byte of the response body."""


Done = Callable[[Sequence[tuple[Transmission, Reply]]], None]


class Transport(Protocol):
    def open(self, done: Done) -> None:
        """Start the transport. `done` is called on the running event loop with batches of replies."""

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Start these attempts and return immediately. Each attempt ends with exactly one reply, passed to `done`."""

    def serves(self, target: str, org_id: UUID) -> bool:
        """Whether this worker can make attempts to this target for an organization. If not, other workers make them."""
        return True

    def slots(self, target: str) -> int | None:
        """The maximum number of concurrent attempts to this target; None if the transport sets no limit."""
        return None

    async def close(self) -> None:
        """Stop the transport. Running attempts are cancelled and not reported."""
