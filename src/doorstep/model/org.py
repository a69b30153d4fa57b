"""Organizations (tenants), their API keys, and the permissions of each role."""

from __future__ import annotations

import math
from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.endpoint import RetryPolicy, Slo
from doorstep.model.record import Record


class Org(Record, frozen=True, kw_only=True):
    org_id: UUID
    name: str
    created_at: Instant
    policy: RetryPolicy | None = None
    policy_by_event_type: dict[str, RetryPolicy] = {}
    slo: Slo | None = None


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    PUBLISHER = "publisher"
    """May only send events and read their status."""


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

    @property
    def ends_at(self) -> float:
        """When the key expires; infinity if it does not expire."""
        return math.inf if self.expires_at is None else self.expires_at

    def is_valid(self, now: Instant) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and self.ends_at > now


class Permission(StrEnum):
    SEND = "send"
    """Send events."""
    STATUS = "status"
    """Read the status of events."""
    LOOK = "look"
    """Read everything else: payloads, the inbox, attempts, endpoints, lists, the audit log."""
    ACT = "act"
    """Change deliveries, events and endpoints; take events out of the inbox."""
    ADMINISTER = "administer"
    """Create and revoke keys; in the default organization, also create organizations."""


ONLY_DEFAULT_ORG = "only keys of the default organization may do that"

_P = Permission

ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.ADMIN: frozenset(Permission),
    Role.OPERATOR: frozenset(Permission) - {_P.ADMINISTER},
    Role.VIEWER: frozenset({_P.STATUS, _P.LOOK}),
    Role.PUBLISHER: frozenset({_P.SEND, _P.STATUS}),
}


def roles_with(permission: Permission) -> list[str]:
    return [role.value for role, allowed in ALLOWED.items() if permission in allowed]


def permission_error(role: Role, permission: Permission) -> str | None:
    """The error message for a role without this permission; None if the role has it."""
    if permission in ALLOWED[role]:
        return None
    return f"the role {role} may not do that; use a key with the role {' or '.join(roles_with(permission))}"
