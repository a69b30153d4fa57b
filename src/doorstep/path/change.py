"""Changing what several people and workers may change at once: read, compute, write if nobody was faster, else again.

A change is computed from a version and written only over that version, so a slow one cannot undo a quick one.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from doorstep.clock import Instant, to_iso
from doorstep.errors import Conflict
from doorstep.model.act import AuditLine
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.stores.store import Store
from doorstep.telemetry.facts import CircuitTransition, Telemetry

RACES_MAX = 10
"""Each lost race means that somebody else got on; more than this in a row would be a bug."""


async def create_endpoint(store: Store, endpoint: Endpoint, actor: str, living_max: int | None = None) -> Endpoint:
    """Keep a new endpoint, and who made it; returns it as it is kept."""
    if not await store.put_endpoint(endpoint, 0, _line(endpoint, actor, "endpoint.create"), living_max):
        raise Conflict(f"there is an endpoint {endpoint.endpoint_id} already")
    return msgspec.structs.replace(endpoint, version=1)


async def change_endpoint(
    store: Store,
    org_id: UUID,
    endpoint_id: UUID,
    change: Callable[[Endpoint], Endpoint | None],
    *,
    actor: str,
    action: str,
    now: Instant,
    reason: str = "",
) -> Endpoint | None:
    """Write what `change` makes of the endpoint, with its audit line; None where it makes nothing of it.

    `change` is asked again with the newest version whenever another change was faster; it raises to give up.
    """
    for _ in range(RACES_MAX):
        endpoint = await store.endpoint(org_id, endpoint_id)
        changed = change(endpoint)
        if changed is None:
            return None
        since = endpoint.state_since if changed.state is endpoint.state else now
        changed = msgspec.structs.replace(changed, updated_at=now, state_since=since)
        if await store.put_endpoint(changed, endpoint.version, _line(changed, actor, action, reason)):
            return msgspec.structs.replace(changed, version=endpoint.version + 1)
    raise Conflict(f"endpoint {endpoint_id} is being changed by others all the time; try again")


async def put_circuit(
    store: Store, telemetry: Telemetry, endpoint: Endpoint, before: Circuit, after: Circuit, why: str, now: Instant
) -> bool:
    """Write a circuit and tell of its change of state; False if another was faster."""
    if not await store.put_circuit(after, before.version, why):
        return False
    if after.state is not before.state:
        telemetry.emit(
            CircuitTransition(
                at=to_iso(now),
                level="warning" if after.state is CircuitState.OPEN else msgspec.UNSET,
                endpoint_id=endpoint.endpoint_id,
                org_id=endpoint.org_id,
                old_state=before.state,
                new_state=after.state,
                failures=after.failures,
                reason=why,
            )
        )
    return True


def living(endpoint: Endpoint) -> Endpoint:
    """The endpoint, unless it was deleted: then nothing about it can be changed any more."""
    if endpoint.state is EndpointState.DELETED:
        raise Conflict(f"endpoint {endpoint.endpoint_id} was deleted")
    return endpoint


def _line(endpoint: Endpoint, actor: str, action: str, reason: str = "") -> AuditLine:
    """The audit of a change that left the endpoint like this."""
    return AuditLine(
        at=endpoint.updated_at,
        org_id=endpoint.org_id,
        actor=actor,
        action=action,
        subjects=(str(endpoint.endpoint_id),),
        result=endpoint.state,
        reason=reason,
    )
