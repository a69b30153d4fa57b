"""Keys, organizations, the audit log and health."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Key(Answered, frozen=True, kw_only=True):
    """An API key, without the key itself."""

    key_id: UUID
    name: str
    role: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None = None


class NewKey(Key, frozen=True, kw_only=True):
    """The answer to its creation: the only one that holds the key."""

    key: str


class Org(Answered, frozen=True, kw_only=True):
    """An organization."""

    org_id: UUID
    name: str
    created_at: datetime


class NewOrg(Answered, frozen=True, kw_only=True):
    """A new organization and its first key, shown this once."""

    org_id: UUID
    name: str
    created_at: datetime
    admin_key: NewKey


class SignInLink(Answered, frozen=True, kw_only=True):
    """A link into the console, for one use."""

    path: str
    expires_at: datetime


class AuditEntry(Answered, frozen=True, kw_only=True):
    """Who did what, when, to which things, with what result."""

    at: datetime
    actor: str
    action: str
    subjects: tuple[str, ...]
    result: str
    reason: str


class Health(Answered, frozen=True, kw_only=True):
    """It answers."""

    status: str
