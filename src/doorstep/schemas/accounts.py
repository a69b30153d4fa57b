"""API keys, organizations, the audit log, sign-in links, and whether a server answers."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.shape import Answer, CountedPagination, Listing, ListQuery, Pagination, Request, Time, choice

RoleName: TypeAlias = Literal["admin", "operator", "viewer", "publisher"]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Words: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]


class KeyIn(Request, frozen=True):
    """A key to be made: what it is for, what it may do, and until when."""

    name: Name
    role: RoleName
    expires_at: Time | None = None


class Key(Answer, frozen=True):
    """A key as it is kept: its beginning, by which people tell their keys apart; never the key itself."""

    key_id: UUID
    name: str
    role: Annotated[str, choice("admin", "operator", "viewer", "publisher")]
    prefix: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class NewKey(Key, frozen=True):
    """The answer to its creation: the only one that holds the key."""

    key: str


class KeyPage(Listing[Key], frozen=True):
    """One page of the keys."""

    keys: tuple[Key, ...]
    pagination: CountedPagination


class OrgIn(Request, frozen=True):
    """An organization to be made."""

    name: Name


class Org(Answer, frozen=True):
    """An organization."""

    org_id: UUID
    name: str
    created_at: Time


class NewOrg(Org, frozen=True):
    """A new organization and its first key, shown this once."""

    admin_key: NewKey


class OrgPage(Listing[Org], frozen=True):
    """One page of the organizations."""

    orgs: tuple[Org, ...]
    pagination: CountedPagination


class AuditQuery(ListQuery, frozen=True, kw_only=True):
    """Which entries of the audit log."""

    actor: Words | None = None
    """Who: the visible beginning of a key, or the name of a service."""
    action: Words | None = None


class AuditEntry(Answer, frozen=True):
    """Who did what, when, to which things, with what result."""

    at: Time
    actor: str
    action: str
    subjects: tuple[str, ...]
    result: str
    reason: str


class AuditPage(Listing[AuditEntry], frozen=True):
    """One page of the audit log."""

    audit: tuple[AuditEntry, ...]
    pagination: Pagination


class SignInLink(Answer, frozen=True):
    """A link into the console, for one use: a path of this very server."""

    path: str
    expires_at: Time


class Health(Answer, frozen=True):
    """It answers."""

    status: Literal["ok"]
