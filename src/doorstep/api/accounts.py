"""API keys, organizations, the audit log, and links that sign a browser in to the console."""

from __future__ import annotations

from uuid import UUID

from doorstep.api.codec import counted, instant_from, page_of, position, shape, shapes, time
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.console.sessions import LASTS, SignInLinks
from doorstep.errors import Conflict
from doorstep.model.listing import Count
from doorstep.model.org import Role
from doorstep.schemas import accounts as schemas
from doorstep.schemas.shape import ListQuery


def key_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1", "keys")

    @routes.post("/keys", status=201)
    async def create_key(body: schemas.KeyIn, caller: Caller) -> schemas.NewKey:
        """Create a key for your organization. The response contains the key, which is shown only once."""
        expires_at = instant_from(body.expires_at, "expires_at")
        record, key = await doorstep.components.keys.create(
            caller.org_id, body.name, Role(body.role), caller.prefix, expires_at
        )
        return shape(schemas.NewKey, record, key=key)

    @routes.get("/keys")
    async def list_keys(query: ListQuery, caller: Caller) -> schemas.KeyPage:
        """The keys of your organization, oldest first, including revoked and expired ones."""
        keys = await doorstep.components.keys.keys(caller.org_id)
        page = page_of(keys, lambda key: key.key_id, query.cursor, query.limit)
        return schemas.KeyPage(
            shapes(schemas.Key, page.items), counted(page, query.limit, Count(len(keys), exact=True))
        )

    @routes.delete("/keys/{key_id}")
    async def revoke_key(key_id: UUID, caller: Caller) -> None:
        """Revoke a key. Other server processes may accept it for up to 5 more seconds."""
        await doorstep.components.keys.revoke(caller.org_id, key_id, caller.prefix)

    @routes.post("/orgs", status=201, tags=["organizations"])
    async def create_org(body: schemas.OrgIn, caller: Caller) -> schemas.NewOrg:
        """Create an organization. The response contains its first admin key, which is shown only once."""
        org, record, key = await doorstep.components.keys.create_org(body.name, caller)
        return shape(schemas.NewOrg, org, admin_key=shape(schemas.NewKey, record, key=key))

    @routes.get("/orgs", tags=["organizations"])
    async def list_orgs(query: ListQuery, caller: Caller) -> schemas.OrgPage:
        """All organizations, oldest first."""
        orgs = sorted(await doorstep.components.keys.orgs(), key=lambda org: (org.created_at, org.org_id))
        page = page_of(orgs, lambda org: org.org_id, query.cursor, query.limit)
        return schemas.OrgPage(
            shapes(schemas.Org, page.items), counted(page, query.limit, Count(len(orgs), exact=True))
        )

    return routes


def audit_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1", "audit")

    @routes.get("/audit")
    async def list_audit(query: schemas.AuditQuery, caller: Caller) -> schemas.AuditPage:
        """The audit log: every action by people or programs that changed something, newest first."""
        page = await doorstep.components.reader.audit(
            caller.org_id, query.actor, query.action, query.cursor, query.limit
        )
        return schemas.AuditPage(shapes(schemas.AuditEntry, page.items), position(page, query.limit))

    return routes


def sign_in_link_routes(doorstep: Doorstep, links: SignInLinks) -> Routes:
    routes = Routes("/v1", "console")

    @routes.post("/sign-in-links", status=201)
    async def create_sign_in_link(caller: Caller) -> schemas.SignInLink:
        """Create a link that signs a browser in to the console with your key, once, within 30 minutes. It works only on the process that created it."""
        if not doorstep.settings.console:
            raise Conflict("the console is turned off; set DOORSTEP_CONSOLE=true to turn it on")
        return schemas.SignInLink(links.new(caller), time(doorstep.clock.now() + LASTS))

    return routes
