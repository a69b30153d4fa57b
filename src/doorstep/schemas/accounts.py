"""API keys, organizations, the audit log, sign-in links, and health."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from doorstep.schemas.shape import Answer, CountedListing, Listing, ListQuery, Query, Request, Time, choice

RoleName: TypeAlias = Literal["admin", "operator", "viewer", "publisher", "consumer"]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
UserId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
ShortText: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]


class KeyIn(Request, frozen=True):
    """A new key: its name, role and expiry."""

    name: Name
    role: RoleName
    expires_at: Time | None = None
    user_id: UserId | None = None
    """The user whose key it is: it sends events for this user and can access only this user's events. Its role is
    `publisher`, `consumer` or `viewer`."""


class Key(Answer, frozen=True):
    """A key, identified by its visible prefix; the key itself is not stored."""

    key_id: UUID
    name: str
    role: Annotated[str, choice(*get_args(RoleName))]
    prefix: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    user_id: str | None
    """The user whose key it is; null for a key that can access all events of the organization."""


class NewKey(Key, frozen=True):
    """The response to the creation of a key. Only this response contains the key itself."""

    key: str


class KeyPage(CountedListing[Key], frozen=True):
    """One page of the keys."""

    keys: tuple[Key, ...]


class OrgIn(Request, frozen=True):
    """A new organization."""

    name: Name


class OrgPatch(Request, frozen=True):
    """The new name of an organization."""

    name: Name


class OrgDeletion(Query, frozen=True, kw_only=True):
    """How to delete an organization."""

    force: bool = False
    """Delete it although it has open deliveries, which become dead letters."""


class Org(Answer, frozen=True):
    """An organization."""

    org_id: UUID
    name: str
    created_at: Time


class NewOrg(Org, frozen=True):
    """A new organization and its first key, which is shown only once."""

    admin_key: NewKey


class OrgPage(CountedListing[Org], frozen=True):
    """One page of the organizations."""

    orgs: tuple[Org, ...]


class AuditQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the audit log."""

    actor: ShortText | None = None
    """The name of a key or of a service, or the visible prefix of a key. If several keys have the name, the entries of
    the newest 20 are found."""
    action: ShortText | None = None
    since: Time | None = None
    """Only entries from this time on."""
    until: Time | None = None
    """Only entries before this time."""


class AuditEntry(Answer, frozen=True):
    """An entry of the audit log: who did what to which objects, when, and with what result."""

    at: Time
    actor: str
    """The name of the key, or of the service or person."""
    actor_id: str
    """The visible prefix of the key; the same as `actor` if it was not a key."""
    action: str
    subjects: tuple[str, ...]
    result: str
    reason: str


class AuditPage(Listing[AuditEntry], frozen=True):
    """One page of the audit log."""

    audit: tuple[AuditEntry, ...]


class SignInLink(Answer, frozen=True):
    """A single-use sign-in link to the console, as a path on this server."""

    path: str
    expires_at: Time


class Health(Answer, frozen=True):
    """The server is up."""

    status: Literal["ok"]
