"""Small builders: one call makes a valid value; a test overrides only the fields that it is about.

Ids are counted, not random, so that a failing test looks the same when it is run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import count
from uuid import UUID

from doorstep.clock import MILLISECOND, SECOND, Instant
from doorstep.model.attempt import Category, Code, Failure, Outcome, Reply, Timings
from doorstep.model.claim import Claim
from doorstep.model.delivery import NewDelivery
from doorstep.model.endpoint import Endpoint, HttpDestination
from doorstep.model.event import Event, Submission
from doorstep.model.org import Org
from doorstep.model.record import uuid7

NOW: Instant = 1_750_000_000 * SECOND
"""The time at which tests begin."""


def id_maker() -> Callable[[], UUID]:
    """Make ids in a fixed order: the n-th call returns the same id for every maker."""
    numbers = count(1)
    return lambda: uuid7(NOW, lambda size: next(numbers).to_bytes(size))


new_id = id_maker()


def an_org(**changes: object) -> Org:
    return Org(**{"org_id": new_id(), "name": "Acme", "created_at": NOW} | changes)  # type: ignore[arg-type]


_numbers = count(2)


def unused(name: str) -> str:
    """A name that no other object has, for objects whose name does not matter."""
    return f"{name} {next(_numbers)}"


def an_endpoint(org_id: UUID, **changes: object) -> Endpoint:
    """An endpoint as the store returns it after its creation. Its name is unique."""
    fields: dict[str, object] = {"endpoint_id": new_id(), "org_id": org_id, "name": unused("shop"), "created_at": NOW}
    fields |= {"destination": HttpDestination("https://shop.example/hook"), "version": 1}
    return Endpoint(**fields | changes)  # type: ignore[arg-type]


def an_event(org_id: UUID, **changes: object) -> Event:
    fields: dict[str, object] = {"event_id": new_id(), "org_id": org_id, "event_type": "user.created"}
    fields |= {"payload": b'{"n": 1}', "created_at": NOW, "correlation_id": "request-1"}
    return Event(**fields | changes)  # type: ignore[arg-type]


def a_submission(
    org_id: UUID,
    endpoint_ids: Sequence[UUID] = (),
    *,
    due_at: Instant = NOW,
    retries_max: int = 3,
    key: str | None = None,
    claimable: bool = False,
    **event: object,
) -> Submission:
    """An event with one delivery for each endpoint; its fingerprint is the hash of its payload."""
    made = an_event(org_id, **event)
    owed = tuple(
        NewDelivery(new_id(), endpoint_id, due_at, retries_max, claimable=claimable) for endpoint_id in endpoint_ids
    )
    return Submission(made, owed, key, hashlib.sha256(made.payload).digest())


def a_claim(**changes: object) -> Claim:
    """A claim of a first attempt, held by `w1` for a minute."""
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


def a_reply(at: Instant, **changes: object) -> Reply:
    """A reply received at `at`, 20 ms after the attempt began."""
    fields: dict[str, object] = {"started_at": at - 20 * MILLISECOND, "finished_at": at, "status": 200}
    fields |= {"timings": Timings(1, 2, 3, 4), "request_headers": b"webhook-id: 1", "headers": b"x: y", "body": b"ok"}
    return Reply(**fields | changes)  # type: ignore[arg-type]


def success(at: Instant, **reply: object) -> Outcome:
    return Outcome(reply=a_reply(at, **reply))


def failure(at: Instant, code: str = Code.SERVICE_UNAVAILABLE, reason: str = "the receiver is down") -> Outcome:
    """A transient failure: the receiver answered 503."""
    reply = a_reply(at, status=503, failure=Failure(code, reason))
    return Outcome(reply=reply, category=Category.TRANSIENT, code=code, reason=reason, detail="detail")


def refusal(at: Instant, code: str = Code.NOT_FOUND, reason: str = "no such page") -> Outcome:
    """A permanent failure: the receiver answered 404."""
    reply = a_reply(at, status=404, failure=Failure(code, reason))
    return Outcome(reply=reply, category=Category.PERMANENT, code=code, reason=reason)
