"""The shapes of API keys and organizations."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from doorstep.api.schemas import CountedPagination, Moment, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.org import ApiKey, Org

RoleName = Literal["admin", "operator", "viewer", "publisher"]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class KeyIn(Shape):
    """A key to be made: what it is for, what it may do, and until when."""

    name: Name
    role: RoleName
    expires_at: Moment | None = None


class KeyOut(Shape):
    """A key as it is kept: its beginning, by which people tell their keys apart; never the key itself."""

    key_id: UUID
    name: str
    role: RoleName
    prefix: str
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None

    @classmethod
    def of(cls, key: ApiKey) -> KeyOut:
        return cls(**_key_fields(key))


class NewKeyOut(KeyOut):
    """The answer to its creation: the only one that holds the key."""

    key: str

    @classmethod
    def with_key(cls, record: ApiKey, key: str) -> NewKeyOut:
        return cls(**_key_fields(record), key=key)


class KeysOut(Shape):
    keys: list[KeyOut]
    pagination: CountedPagination


class OrgIn(Shape):
    name: Name


class OrgOut(Shape):
    org_id: UUID
    name: str
    created_at: Timestamp

    @classmethod
    def of(cls, org: Org) -> OrgOut:
        return cls(org_id=org.org_id, name=org.name, created_at=to_iso(org.created_at))


class NewOrgOut(OrgOut):
    admin_key: NewKeyOut


class OrgsOut(Shape):
    orgs: list[OrgOut]
    pagination: CountedPagination


def _key_fields(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "role": key.role.value,
        "prefix": key.prefix,
        "created_at": to_iso(key.created_at),
        "expires_at": iso(key.expires_at),
        "revoked_at": iso(key.revoked_at),
    }
