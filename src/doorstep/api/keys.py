"""Making and revoking API keys, and making organizations."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from doorstep.api.auth import Caller
from doorstep.api.key_schemas import KeyIn, KeyOut, KeysOut, NewKeyOut, NewOrgOut, OrgIn, OrgOut, OrgsOut
from doorstep.api.routing import group
from doorstep.api.schemas import Asked, CountedPagination, page_of
from doorstep.app import Doorstep
from doorstep.model.listing import Count
from doorstep.model.org import Role


def key_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1", "keys")

    @router.post("/keys", status_code=201)
    async def create_key(body: KeyIn, caller: Caller) -> NewKeyOut:
        """Create a key for your organization. The answer holds the key, which cannot be seen again."""
        record, key = await doorstep.components.keys.create(
            caller.org_id, body.name, Role(body.role), caller.prefix, body.expires_at
        )
        return NewKeyOut.with_key(record, key)

    @router.get("/keys")
    async def list_keys(asked: Annotated[Asked, Query()], caller: Caller) -> KeysOut:
        """The keys of your organization in the order of their creation, revoked and expired ones too."""
        keys = await doorstep.components.keys.keys(caller.org_id)
        page = page_of(keys, lambda key: key.key_id, asked.cursor, asked.limit)
        count = Count(len(keys), exact=True)
        return KeysOut(
            keys=[KeyOut.of(key) for key in page.items],
            pagination=CountedPagination.counted(page, asked.limit, count),
        )

    @router.delete("/keys/{key_id}", status_code=204)
    async def revoke_key(key_id: UUID, caller: Caller) -> None:
        """Revoke a key. It opens nothing any more; processes that have just seen it know within 5 seconds."""
        await doorstep.components.keys.revoke(caller.org_id, key_id, caller.prefix)

    @router.post("/orgs", status_code=201, tags=["organizations"])
    async def create_org(body: OrgIn, caller: Caller) -> NewOrgOut:
        """Create an organization. The answer holds its first admin key, which cannot be seen again."""
        org, record, key = await doorstep.components.keys.create_org(body.name, caller)
        return NewOrgOut(**OrgOut.of(org).model_dump(), admin_key=NewKeyOut.with_key(record, key))

    @router.get("/orgs", tags=["organizations"])
    async def list_orgs(asked: Annotated[Asked, Query()], caller: Caller) -> OrgsOut:
        """All organizations in the order of their creation."""
        orgs = sorted(await doorstep.components.keys.orgs(), key=lambda org: (org.created_at, org.org_id))
        page = page_of(orgs, lambda org: org.org_id, asked.cursor, asked.limit)
        count = Count(len(orgs), exact=True)
        return OrgsOut(
            orgs=[OrgOut.of(org) for org in page.items],
            pagination=CountedPagination.counted(page, asked.limit, count),
        )

    return router
