"""A claim to decide about."""

from __future__ import annotations

from doorstep.clock import SECOND
from doorstep.model.claim import Claim
from tests.builders import NOW, new_id


def a_claim(**changes: object) -> Claim:
    claim = Claim(
        key=1,
        event_key=1,
        token=1,
        delivery_id=new_id(),
        event_id=new_id(),
        endpoint_id=new_id(),
        org_id=new_id(),
        event_type="order.paid",
        payload=b"{}",
        correlation_id="c",
        accepted_at=NOW,
        expires_at=None,
        attempt=1,
        retry_attempts=0,
        retries_max=3,
        first_failed_at=None,
        claimed_at=NOW,
        lease_until=NOW + 60 * SECOND,
        worker="w1",
        picked_up=True,
    )
    return claim._replace(**changes)  # type: ignore[arg-type]
