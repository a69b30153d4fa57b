"""What the steps know about endpoints and organizations: a picture of them, refreshed when it has changed."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.endpoint import Endpoint
from doorstep.model.org import Org
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.tuning import Tuning
from doorstep.policy.retry import capped, policy_for
from doorstep.policy.routing import RouteTable
from doorstep.sealing import Sealer
from doorstep.stores.store import Store
from doorstep.wire.signature import Signer

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
