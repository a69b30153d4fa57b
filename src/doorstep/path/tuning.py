"""The numbers that the engine runs by; the settings of an installation fill them in."""

from __future__ import annotations

from doorstep.model.noun import Noun
from doorstep.model.retry_policy import RetryPolicy
from doorstep.policy.retry import BUILT_IN


class Tuning(Noun, frozen=True, kw_only=True):
    lease_seconds: float = 60
    """How long a worker may hold a delivery; longer than any attempt can take."""
    timeout_seconds: float = 30
    """For one whole attempt, unless the endpoint has its own."""
    places: int = 512
    """Tries under way at once in one worker."""
    connections_per_endpoint: int = 64
    """Tries under way at once to one endpoint from one worker, unless the endpoint has its own limit."""
    policy: RetryPolicy = BUILT_IN["standard"]
    retries_max: int = 20
    """No policy may retry more often than this."""
    settle_linger_seconds: float = 0.002
    """How long a busy worker gathers results before it writes them: 250 to a write instead of 20."""
    grace_seconds: float = 20
    """How long a stopping worker waits for tries under way."""
    accept_queue_max: int = 20_000
    """Events waiting for their commit; more are refused with "try again later"."""
    payload_bytes_max: int = 262_144
    retention_days: float = 7
    archive_after_days: float = 7
    revive_after_seconds: float = 5
    """An operator's retry of a dead letter is due this much later."""
