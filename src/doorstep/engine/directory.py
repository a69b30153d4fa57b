"""The endpoints as attempts need them, the tuning of the engine, and versioned writes to endpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant, to_iso
from doorstep.encryption import Sealer, UnsealError
from doorstep.engine.loaded import LoadedOrgs
from doorstep.errors import Conflict
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState, RetryPolicy
from doorstep.model.record import Record
from doorstep.policy.retry import BUILT_IN, capped, policy_for
from doorstep.stores.store import Put, Store
from doorstep.telemetry.facts import CircuitTransition, Telemetry
from doorstep.transports.signature import Signer

USER_AGENT = "Doorstep/0.1"
_POLICIES_MAX = 100_000
"""The maximum number of policies in the cache. A sender that keeps inventing event types must not use up the memory."""


class Profile:
    """The endpoint data that attempts need. It is computed once after each change of the endpoint, not for each
    attempt."""

    def __init__(self, endpoint: Endpoint, sealer: Sealer, timeout_seconds: float, now: Instant) -> None:
        self.endpoint = endpoint
        self.kind = endpoint.destination.kind
        self.target = endpoint.destination.target
        self.signed = endpoint.destination.signed
        self.timeout_seconds = endpoint.timeout_seconds or timeout_seconds
        own = unseal_headers(endpoint, sealer)
        standard = ("content-type: application/json", f"user-agent: {USER_AGENT}")
        self.header_lines = (*standard, *(f"{name}: {value}" for name, value in own.items()))
        self.logged_lines = "\n".join((*standard, *(f"{name}: ***" for name in own)))
        valid = [secret for secret in endpoint.secrets if secret.expires_at is None or secret.expires_at > now]
        self.signer = Signer([unseal_secret(endpoint, sealer, secret.sealed) for secret in valid])
        self.stale_at = min((secret.expires_at for secret in valid if secret.expires_at is not None), default=None)


class Directory(LoadedOrgs):
    """The endpoints that this process works with, with what attempts need. Each process has one Directory."""

    def __init__(self, store: Store, sealer: Sealer, tuning: Tuning) -> None:
        super().__init__(store)
        self._sealer = sealer
        self._tuning = tuning
        self._profiles: dict[UUID, Profile] = {}
        self._policies: dict[tuple[UUID, str], tuple[int, RetryPolicy]] = {}
        """The policies by endpoint and event type, each with the routing version for which it was computed."""
        self.unsealable: set[UUID] = set()
        """Endpoints whose secrets another key encrypts. This happens only if the key of the installation was changed
        while this process was running, so their deliveries are left to other workers."""

    def _forget_endpoints(self, endpoint_ids: Collection[UUID]) -> None:
        super()._forget_endpoints(endpoint_ids)
        for endpoint_id in endpoint_ids:
            self._profiles.pop(endpoint_id, None)
            self.unsealable.discard(endpoint_id)

    def profile(self, endpoint_id: UUID, now: Instant) -> Profile | None:
        """The profile of an endpoint; None if it was deleted or is not loaded. Raises UnsealError for an endpoint in
        `unsealable`."""
        profile = self._profiles.get(endpoint_id)
        if profile is None or (profile.stale_at is not None and profile.stale_at <= now):
            endpoint = self.endpoint(endpoint_id)
            if endpoint is None:
                return None
            try:
                profile = Profile(endpoint, self._sealer, self._tuning.timeout_seconds, now)
            except UnsealError:
                self.unsealable.add(endpoint_id)
                raise
            self._profiles[endpoint_id] = profile
        return profile

    def policy(self, endpoint: Endpoint, event_type: str) -> RetryPolicy:
        """The retry policy of a loaded endpoint for events of this type."""
        known, key = self._orgs[endpoint.org_id], (endpoint.endpoint_id, event_type)
        version, policy = self._policies.get(key, (-1, self._tuning.policy))
        if version != known.version:
            if len(self._policies) >= _POLICIES_MAX:
                self._policies.clear()
            chosen = policy_for(endpoint, known.org, event_type, self._tuning.policy)
            policy = capped(chosen, self._tuning.retries_max)
            self._policies[key] = known.version, policy
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


LEASE_SECONDS_MIN = 1.0
"""The shortest lease that the settings allow."""


class Tuning(Record, frozen=True, kw_only=True):
    """The settings that the engine works with."""

    lease_seconds: float = 60
    """How long a claim lasts. This is longer than any attempt can take."""
    timeout_seconds: float = 30
    """The time limit for one whole attempt, unless the endpoint sets its own."""
    slots: int = 512
    """The maximum number of attempts that one worker has in flight at the same time."""
    connections_per_endpoint: int = 64
    """The maximum number of attempts that one worker has in flight to one endpoint, unless the endpoint sets its own
    limit."""
    policy: RetryPolicy = BUILT_IN["standard"]
    circuits: bool = True
    """Whether circuits may open. If not, the rules of every endpoint count as switched off."""
    retries_max: int = 20
    """The maximum number of retries in any policy."""
    settle_linger_seconds: float = 0.002
    """How long a busy worker collects results before it writes them. One write then holds 250 results instead of 20."""
    grace_seconds: float = 20
    """How long a stopping worker waits for attempts in flight."""
    accept_queue_max: int = 20_000
    """The maximum number of events that may wait to be committed. Further events are rejected with "try again
    later"."""
    accept_queue_bytes_max: int = 64 * 1024 * 1024
    """The maximum total size of the payloads and metadata of the events waiting to be committed."""
    buffer_bytes_max: int = 128 * 1024 * 1024
    """The maximum total size of the payloads that one worker holds, whether they wait for a slot or are in flight. Even
    at this limit, the worker claims one delivery for an organization if it holds none for that organization."""
    settle_slack_seconds: float = 0.25
    """An attempt starts only if the lease will still have this much time left when the attempt times out, so that there
    is time to write the result. A lease is at least a second longer than any timeout (config.py). The rest of that
    second is for the time between claim and start."""
    payload_bytes_max: int = 262_144
    retention_days: float = 7
    dead_retention_days: float = 0
    """0 keeps dead letters."""
    inbox_retention_days: float = 30
    audit_retention_days: float = 365
    entity_retention_days: float = 365
    minutes_retention_days: float = 2
    hours_retention_days: float = 400
    archive_after_days: float = 7
    revive_after_seconds: float = 5
    """The delay until a dead letter becomes due after an operator retries it."""


RACES_MAX = 10
"""The maximum number of tries for a versioned write. Each lost race means that another writer succeeded; losing this
many in a row would be a bug."""


class AlreadyExists(Conflict):
    """An endpoint with the same id exists already."""


async def create_endpoint(store: Store, endpoint: Endpoint, actor: str, endpoints_max: int | None = None) -> Endpoint:
    """Store a new endpoint with its audit entry; returns the endpoint as stored."""
    put = Put(document=endpoint, expected_version=0, limit=endpoints_max)
    if not await store.write([put], _audit_entry(endpoint, actor, "endpoint.create")):
        raise AlreadyExists(f"an endpoint {endpoint.endpoint_id} already exists")
    return replace(endpoint, version=1)


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
    """Write the endpoint that `change` returns, with its audit entry. If `change` returns None, write nothing.

    If another writer was faster, `change` is called again with the newest version. To stop, `change` may raise an
    error.
    """
    for _ in range(RACES_MAX):
        endpoint = await store.get(Endpoint, org_id, endpoint_id)
        changed = change(endpoint)
        if changed is None:
            return None
        since = endpoint.state_since if changed.state is endpoint.state else now
        changed = replace(changed, updated_at=now, state_since=since)
        put = Put(document=changed, expected_version=endpoint.version)
        if await store.write([put], _audit_entry(changed, actor, action, reason)):
            return replace(changed, version=endpoint.version + 1)
    raise Conflict(f"endpoint {endpoint_id} keeps being changed by others; try again")


async def put_circuit(
    store: Store, telemetry: Telemetry, endpoint: Endpoint, before: Circuit, after: Circuit, why: str, now: Instant
) -> bool:
    """Write a circuit and emit its change of state, if any. Returns False if another writer was faster."""
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


def existing(endpoint: Endpoint) -> Endpoint:
    """The endpoint itself. Raises Conflict if it was deleted, because deleted endpoints cannot be changed."""
    if endpoint.state is EndpointState.DELETED:
        raise Conflict(f"endpoint {endpoint.endpoint_id} was deleted")
    return endpoint


def _audit_entry(endpoint: Endpoint, actor: str, action: str, reason: str = "") -> AuditEntry:
    """The audit entry for a change to an endpoint. `endpoint` is the result of the change."""
    about = (actor, action, endpoint.endpoint_id)
    return audit_entry(endpoint.updated_at, endpoint.org_id, *about, result=endpoint.state, reason=reason)
