"""Organizations (tenants), their API keys, and the permissions of each role."""

from __future__ import annotations

import math
from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.endpoint import Endpoint, RetryPolicy, Slo
from doorstep.model.record import Record


class Org(Record, frozen=True, kw_only=True):
    org_id: UUID
    name: str
    created_at: Instant
    policy: RetryPolicy | None = None
    policy_by_event_type: dict[str, RetryPolicy] = {}
    slo: Slo | None = None
    deleted_at: Instant | None = None
    """When it was deleted. Its data may still be stored, but nobody can reach it."""
    search_fields: dict[str, Instant] = {}
    """The fields of payloads and metadata that can be searched by an index. Each has the time from which the index is
    complete."""


class Routing(Record, frozen=True):
    """Where the events of one organization go. `Store.accept` gets the version, so that it can detect a stale
    snapshot."""

    org: Org
    version: int
    endpoints: tuple[Endpoint, ...]
    """Oldest first: all endpoints that are not deleted, or those that have changed since a known version, including
    deleted ones (`Store.routing`)."""


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    PUBLISHER = "publisher"
    """May only send events and read their status."""
    CONSUMER = "consumer"
    """A publisher that may also fetch and acknowledge the inbox."""


class ApiKey(Record, frozen=True, kw_only=True):
    """An API key as stored: a hash and a visible prefix, but never the key itself."""

    key_id: UUID
    org_id: UUID
    name: str
    role: Role
    prefix: str
    digest: bytes
    created_at: Instant
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    user_id: str | None = None
    """The user whose key it is. Such a key sends events for its user, and can access only events of this user. A key
    without a user can access all events of its organization."""

    @property
    def ends_at(self) -> float:
        """When the key expires; infinity if it does not expire."""
        return math.inf if self.expires_at is None else self.expires_at

    def is_valid(self, now: Instant) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and self.ends_at > now


class KeyCheck(Record, frozen=True, kw_only=True):
    """Identifies the secret key that encrypts the secrets in a store. Every process must have this key."""

    fingerprint: int


class Permission(StrEnum):
    SEND = "send"
    """Send events."""
    STATUS = "status"
    """Read the status of events."""
    INBOX = "inbox"
    """Read the inbox, payloads included."""
    CONSUME = "consume"
    """Lease and acknowledge the events of the inbox."""
    LOOK = "look"
    """Read everything else: payloads, attempts, endpoints, lists, the audit log."""
    ACT = "act"
    """Change deliveries, events and endpoints."""
    ADMINISTER = "administer"
    """Create and revoke keys; in the default organization, also create organizations."""


ONLY_DEFAULT_ORG = "only keys of the default organization may do that"
NOT_FOR_USERS = "a key with a user may only use what belongs to its user; use a key without a user"
USER_ROLES = (Role.PUBLISHER, Role.CONSUMER, Role.VIEWER)
"""The roles that a key with a user may have."""

_P = Permission

ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.ADMIN: frozenset(Permission),
    Role.OPERATOR: frozenset(Permission) - {_P.ADMINISTER},
    Role.VIEWER: frozenset({_P.STATUS, _P.INBOX, _P.LOOK}),
    Role.PUBLISHER: frozenset({_P.SEND, _P.STATUS}),
    Role.CONSUMER: frozenset({_P.SEND, _P.STATUS, _P.INBOX, _P.CONSUME}),
}


def roles_with(permission: Permission) -> list[str]:
    return [role.value for role, allowed in ALLOWED.items() if permission in allowed]


def permission_error(role: Role, permission: Permission) -> str | None:
    """The error message for a role without this permission; None if the role has it."""
    if permission in ALLOWED[role]:
        return None
    return f"the role {role} may not do that; use a key with the role {' or '.join(roles_with(permission))}"
