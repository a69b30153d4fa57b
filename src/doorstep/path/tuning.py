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
    accept_queue_bytes_max: int = 64 * 1024 * 1024
    """Their payloads together."""
    hand_bytes_max: int = 128 * 1024 * 1024
    """Payloads that one worker holds at once, waiting for a place or being tried. An organization that holds nothing
    may always have one more."""
    settle_slack_seconds: float = 0.25
    """What must be left of a lease beyond the timeout of a try that begins, to write its result down. A lease has at
    least a second more than any timeout (config.py); the rest is for the way from the claim to the begin."""
    payload_bytes_max: int = 262_144
    retention_days: float = 7
    inbox_retention_days: float = 30
    audit_retention_days: float = 365
    entity_retention_days: float = 365
    minutes_retention_days: float = 2
    hours_retention_days: float = 400
    archive_after_days: float = 7
    revive_after_seconds: float = 5
    """An operator's retry of a dead letter is due this much later."""
