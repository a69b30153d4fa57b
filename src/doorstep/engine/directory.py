"""What the engine knows about endpoints and organizations, its tuning, and versioned writes to endpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec

from doorstep.clock import Instant, to_iso
from doorstep.encryption import Sealer
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.circuit import Circuit, CircuitState
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy
from doorstep.model.org import Org
from doorstep.model.record import Record
from doorstep.policy.retry import BUILT_IN, capped, policy_for
from doorstep.policy.routing import RouteTable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import CircuitTransition, Telemetry
from doorstep.transports.signature import Signer

USER_AGENT = "Doorstep/0.1"


class Profile:
    """All that a try needs to know of its endpoint, worked out once per change instead of once per try."""

    def __init__(self, endpoint: Endpoint, sealer: Sealer, timeout_seconds: float, now: Instant) -> None:
        self.endpoint = endpoint
        self.target = endpoint.url or endpoint.handler or ""
        self.timeout_seconds = endpoint.timeout_seconds or timeout_seconds
        own = unseal_headers(endpoint, sealer)
        standard = ("content-type: application/json", f"user-agent: {USER_AGENT}")
        self.header_lines = (*standard, *(f"{name}: {value}" for name, value in own.items()))
        self.logged_lines = "\n".join((*standard, *(f"{name}: ***" for name in own)))
        valid = [secret for secret in endpoint.secrets if secret.expires_at is None or secret.expires_at > now]
        self.signer = Signer([unseal_secret(endpoint, sealer, secret.sealed) for secret in valid])
        self.stale_at = min((secret.expires_at for secret in valid if secret.expires_at is not None), default=None)


class Directory:
    """Endpoints by id, routes by event type, and the policy for each; one per process."""

    def __init__(self, store: Store, sealer: Sealer, tuning: Tuning) -> None:
        self._store = store
        self._sealer = sealer
        self._tuning = tuning
        self._endpoints: dict[UUID, Endpoint] = {}
        self._orgs: dict[UUID, Org] = {}
        self._profiles: dict[UUID, Profile] = {}
        self._policies: dict[tuple[UUID, str], RetryPolicy] = {}
        self.version = -1
        self.routes = RouteTable(())

    async def refresh(self) -> None:
        """Take in what has changed; one cheap question to the store when nothing has."""
        if await self._store.routing_version() != self.version:
            await self.reload()

    async def reload(self) -> None:
        orgs = await self._store.orgs()
        routing = await self._store.routing()
        if routing.version < self.version:
            return  # another reload was faster and has seen more
        self._orgs = {org.org_id: org for org in orgs}
        self._endpoints = {endpoint.endpoint_id: endpoint for endpoint in routing.endpoints}
        self._profiles.clear()
        self._policies.clear()
        self.routes = RouteTable(routing.endpoints)
        self.version = routing.version

    async def check_org(self, org_id: UUID) -> None:
        """NotFound for an organization that does not exist, looked up anew if it was not known before."""
        if org_id not in self._orgs:
            await self.reload()
            if org_id not in self._orgs:
                raise NotFound(f"no organization {org_id}")

    def endpoint(self, endpoint_id: UUID) -> Endpoint | None:
        return self._endpoints.get(endpoint_id)

    @property
    def endpoints(self) -> Collection[Endpoint]:
        """All that are not deleted."""
        return self._endpoints.values()

    def org(self, org_id: UUID) -> Org | None:
        return self._orgs.get(org_id)

    def profile(self, endpoint_id: UUID, now: Instant) -> Profile | None:
        profile = self._profiles.get(endpoint_id)
        if profile is None or (profile.stale_at is not None and profile.stale_at <= now):
            endpoint = self._endpoints.get(endpoint_id)
            if endpoint is None:
                return None
            profile = Profile(endpoint, self._sealer, self._tuning.timeout_seconds, now)
            self._profiles[endpoint_id] = profile
        return profile

    def policy(self, endpoint: Endpoint, event_type: str) -> RetryPolicy:
        key = (endpoint.endpoint_id, event_type)
        policy = self._policies.get(key)
        if policy is None:
            if len(self._policies) > 100_000:  # a sender that invents event types must not fill the memory
                self._policies.clear()
            chosen = policy_for(endpoint, self._orgs.get(endpoint.org_id), event_type, self._tuning.policy)
            policy = self._policies[key] = capped(chosen, self._tuning.retries_max)
        return policy


def seal_headers(endpoint_id: UUID, sealer: Sealer, headers: dict[str, str]) -> bytes:
    return sealer.seal(msgspec.json.encode(headers), context=f"headers:{endpoint_id}") if headers else b""


def unseal_headers(endpoint: Endpoint, sealer: Sealer) -> dict[str, str]:
    if not endpoint.sealed_headers:
        return {}
    opened = sealer.unseal(endpoint.sealed_headers, context=f"headers:{endpoint.endpoint_id}")
    return msgspec.json.decode(opened, type=dict[str, str])


def seal_secret(endpoint_id: UUID, sealer: Sealer, secret: str) -> bytes:
    return sealer.seal(secret.encode(), context=f"secret:{endpoint_id}")


def unseal_secret(endpoint: Endpoint, sealer: Sealer, sealed: bytes) -> str:
    return sealer.unseal(sealed, context=f"secret:{endpoint.endpoint_id}").decode()


class Tuning(Record, frozen=True, kw_only=True):
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


def _line(endpoint: Endpoint, actor: str, action: str, reason: str = "") -> AuditEntry:
    """The audit of a change that left the endpoint like this."""
    return AuditEntry(
        at=endpoint.updated_at,
        org_id=endpoint.org_id,
        actor=actor,
        action=action,
        subjects=(str(endpoint.endpoint_id),),
        result=endpoint.state,
        reason=reason,
    )
