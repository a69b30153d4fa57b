"""API keys, organizations, the audit log, and links that sign a browser in to the console."""

from __future__ import annotations

from uuid import UUID

from doorstep.api.answers import all_of, counted, page_of, position, shape, time
from doorstep.api.bodies import instant_from
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.console.sessions import LASTS, SignInLinks
from doorstep.errors import Conflict
from doorstep.model import action
from doorstep.model import org as model
from doorstep.model.listing import Count
from doorstep.schemas.accounts import (
    AuditEntry,
    AuditPage,
    AuditQuery,
    Key,
    KeyIn,
    KeyPage,
    NewKey,
    NewOrg,
    Org,
    OrgIn,
    OrgPage,
    SignInLink,
)
from doorstep.schemas.shape import ListQuery


def key_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1", "keys")

    @routes.post("/keys", status=201)
    async def create_key(body: KeyIn, caller: Caller) -> NewKey:
        """Create a key for your organization. The answer holds the key, which cannot be seen again."""
        expires_at = instant_from(body.expires_at, "expires_at")
        record, key = await doorstep.components.keys.create(
            caller.org_id, body.name, model.Role(body.role), caller.prefix, expires_at
        )
        return shape(NewKey, record, key=key)

    @routes.get("/keys")
    async def list_keys(asked: ListQuery, caller: Caller) -> KeyPage:
        """The keys of your organization in the order of their creation, revoked and expired ones too."""
        keys = await doorstep.components.keys.keys(caller.org_id)
        page = page_of(keys, lambda key: key.key_id, asked.cursor, asked.limit)
        return KeyPage(all_of(_key_shown, page.items), counted(page, asked.limit, Count(len(keys), exact=True)))

    @routes.delete("/keys/{key_id}")
    async def revoke_key(key_id: UUID, caller: Caller) -> None:
        """Revoke a key. It opens nothing any more; processes that have just seen it know within 5 seconds."""
        await doorstep.components.keys.revoke(caller.org_id, key_id, caller.prefix)

    @routes.post("/orgs", status=201, tags=["organizations"])
    async def create_org(body: OrgIn, caller: Caller) -> NewOrg:
        """Create an organization. The answer holds its first admin key, which cannot be seen again."""
        org, record, key = await doorstep.components.keys.create_org(body.name, caller)
        return shape(NewOrg, org, admin_key=shape(NewKey, record, key=key))

    @routes.get("/orgs", tags=["organizations"])
    async def list_orgs(asked: ListQuery, caller: Caller) -> OrgPage:
        """All organizations in the order of their creation."""
        orgs = sorted(await doorstep.components.keys.orgs(), key=lambda org: (org.created_at, org.org_id))
        page = page_of(orgs, lambda org: org.org_id, asked.cursor, asked.limit)
        return OrgPage(all_of(_org_shown, page.items), counted(page, asked.limit, Count(len(orgs), exact=True)))

    return routes


def audit_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1", "audit")

    @routes.get("/audit")
    async def list_audit(asked: AuditQuery, caller: Caller) -> AuditPage:
        """Every act of people and programs that changed something, newest first."""
        page = await doorstep.components.reader.audit(
            caller.org_id, asked.actor, asked.action, asked.cursor, asked.limit
        )
        return AuditPage(all_of(_entry_shown, page.items), position(page, asked.limit))

    return routes


def sign_in_link_routes(doorstep: Doorstep, links: SignInLinks) -> Routes:
    routes = Routes("/v1", "console")

    @routes.post("/sign-in-links", status=201)
    async def create_sign_in_link(caller: Caller) -> SignInLink:
        """Create a link that signs a browser in to the console as your key, once, within 30 minutes. Only the process that made it knows it."""
        if not doorstep.settings.console:
            raise Conflict("the console is turned off here; set DOORSTEP_CONSOLE=true to have it")
        return SignInLink(links.new(caller), time(doorstep.clock.now() + LASTS))

    return routes


# -- shapes ------------------------------------------------------------------------------------------------------


def _key_shown(key: model.ApiKey) -> Key:
    return shape(Key, key)


def _org_shown(org: model.Org) -> Org:
    return shape(Org, org)


def _entry_shown(line: action.AuditEntry) -> AuditEntry:
    return shape(AuditEntry, line)
