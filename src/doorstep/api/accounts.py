"""API keys, organizations, the audit log, and links that sign a browser in to the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from doorstep.api.codec import instant_from, position
from doorstep.api.routing import ApiRequest, Routes
from doorstep.console.sessions import LASTS
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.listing import UNKNOWN_CURSOR
from doorstep.model.org import Permission, Role
from doorstep.operations.shapes import shape, shapes, time
from doorstep.schemas import accounts as schemas
from doorstep.schemas.shape import CountedPagination, ListQuery

T = TypeVar("T")

routes = Routes("/v1")


@routes.post("/keys", Permission.ADMINISTER, conflict=True, status=201, tags=["keys"])
async def create_key(body: schemas.KeyIn, request: ApiRequest) -> schemas.NewKey:
    """Create a key for your organization. The response contains the key, which is shown only once."""
    expires_at = instant_from(body.expires_at, "expires_at")
    record, key = await request.components.keys.create(
        request.org_id, body.name, Role(body.role), request.actor, expires_at, body.user_id
    )
    return shape(schemas.NewKey, record, key=key)


@routes.get("/keys", Permission.ADMINISTER, tags=["keys"])
async def list_keys(query: ListQuery, request: ApiRequest) -> schemas.KeyPage:
    """The keys of your organization, oldest first, including revoked and expired ones."""
    keys = await request.components.keys.keys(request.org_id)
    page, pagination = _page_of(keys, [key.key_id for key in keys], query)
    return schemas.KeyPage(shapes(schemas.Key, page), pagination=pagination)


@routes.delete("/keys/{key_id}", Permission.ADMINISTER, conflict=True, tags=["keys"])
async def revoke_key(key_id: UUID, request: ApiRequest) -> None:
    """Revoke a key. Other server processes may accept it for up to 5 more seconds."""
    await request.components.keys.revoke(request.org_id, key_id, request.actor)


@routes.post("/orgs", Permission.ADMINISTER, default_org=True, status=201, tags=["keys", "organizations"])
async def create_org(body: schemas.OrgIn, request: ApiRequest) -> schemas.NewOrg:
    """Create an organization. The response contains its first admin key, which is shown only once."""
    org, record, key = await request.components.keys.create_org(body.name, request.key)
    return shape(schemas.NewOrg, org, admin_key=shape(schemas.NewKey, record, key=key))


@routes.patch("/orgs/{org_id}", Permission.ADMINISTER, default_org=True, tags=["keys", "organizations"])
async def rename_org(org_id: UUID, body: schemas.OrgPatch, request: ApiRequest) -> schemas.Org:
    """Rename an organization."""
    return shape(schemas.Org, await request.components.orgs.rename(org_id, body.name, request.key))


@routes.delete("/orgs/{org_id}", Permission.ADMINISTER, default_org=True, conflict=True, tags=["keys", "organizations"])
async def delete_org(org_id: UUID, query: schemas.OrgDeletion, request: ApiRequest) -> None:
    """Delete an organization, except the default one. Its keys stop working at once, other server processes may accept
    them for up to 5 more seconds. Without `force`, an organization with open deliveries is not deleted."""
    await request.components.orgs.delete(org_id, request.key, force=query.force)


@routes.get("/orgs", Permission.ADMINISTER, default_org=True, tags=["keys", "organizations"])
async def list_orgs(query: ListQuery, request: ApiRequest) -> schemas.OrgPage:
    """All organizations, oldest first."""
    orgs = sorted(await request.components.keys.orgs(), key=lambda org: (org.created_at, org.org_id))
    page, pagination = _page_of(orgs, [org.org_id for org in orgs], query)
    return schemas.OrgPage(shapes(schemas.Org, page), pagination=pagination)


def _page_of(items: Sequence[T], ids: Sequence[UUID], query: ListQuery) -> tuple[Sequence[T], CountedPagination]:
    """A page of an in-memory list, which must never shrink. The cursor is the id of the previous page's last item."""
    positions = {str(one): position for position, one in enumerate(ids)}
    if query.cursor is not None and query.cursor not in positions:
        raise InvalidInput("cursor", UNKNOWN_CURSOR)
    start = 0 if query.cursor is None else positions[query.cursor] + 1
    end = start + query.limit
    cursor = str(ids[end - 1]) if end < len(items) else None
    return items[start:end], CountedPagination(query.limit, cursor, cursor is not None, len(items), False)


@routes.get("/audit", Permission.LOOK, tags=["audit"])
async def list_audit(query: schemas.AuditQuery, request: ApiRequest) -> schemas.AuditPage:
    """The audit log: every change made by a person or a program, newest first."""
    since, before = instant_from(query.since, "since"), instant_from(query.until, "until")
    page = await request.reader.audit(
        request.org_id, query.actor, query.action, query.cursor, query.limit, since=since, before=before
    )
    names = await request.reader.key_names(request.org_id, (one.actor for one in page.items))
    entries = [
        shape(schemas.AuditEntry, one, actor=names.get(one.actor, one.actor), actor_id=one.actor) for one in page.items
    ]
    return schemas.AuditPage(tuple(entries), pagination=position(page, query.limit))


@routes.post("/sign-in-links", Permission.LOOK, conflict=True, status=201, tags=["console"])
async def create_sign_in_link(request: ApiRequest) -> schemas.SignInLink:
    """Create a link that signs a browser in to the console with your key. The link works once, within 30 minutes, and
    only on the server process that created it."""
    if not request.doorstep.settings.console:
        raise Conflict("the console is turned off; set DOORSTEP_CONSOLE=true to turn it on")
    path = request.http.app.state.links.new(request.key)
    return schemas.SignInLink(path, time(request.doorstep.clock.now() + LASTS))
