"""An organization (a tenant) and the API keys that act for it."""

from __future__ import annotations

import math
from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.noun import Noun
from doorstep.model.retry_policy import RetryPolicy
from doorstep.model.slo import Slo


class Org(Noun, frozen=True, kw_only=True):
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


class ApiKey(Noun, frozen=True, kw_only=True):
    """A key as stored: its hash and a visible prefix, never the key itself."""

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
        """When it expires; infinity for one that does not."""
        return math.inf if self.expires_at is None else self.expires_at

    def is_valid(self, now: Instant) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and self.ends_at > now
