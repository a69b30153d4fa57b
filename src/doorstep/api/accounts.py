"""API keys, organizations, the audit log, and links that sign a browser in to the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from doorstep.api.codec import instant_from, position, shape, shapes, time
from doorstep.api.routing import ApiRequest, Routes
from doorstep.console.sessions import LASTS
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.listing import UNKNOWN_CURSOR
from doorstep.model.org import Role
from doorstep.schemas import accounts as schemas
from doorstep.schemas.shape import CountedPagination, ListQuery

T = TypeVar("T")

routes = Routes("/v1")


@routes.post("/keys", status=201, tags=["keys"])
async def create_key(body: schemas.KeyIn, request: ApiRequest) -> schemas.NewKey:
    """Create a key for your organization. The response contains the key, which is shown only once."""
    expires_at = instant_from(body.expires_at, "expires_at")
    record, key = await request.components.keys.create(
        request.org_id, body.name, Role(body.role), request.actor, expires_at
    )
    return shape(schemas.NewKey, record, key=key)


@routes.get("/keys", tags=["keys"])
async def list_keys(query: ListQuery, request: ApiRequest) -> schemas.KeyPage:
    """The keys of your organization, oldest first, including revoked and expired ones."""
    keys = await request.components.keys.keys(request.org_id)
    page, pagination = _page_of(keys, [key.key_id for key in keys], query)
    return schemas.KeyPage(shapes(schemas.Key, page), pagination=pagination)


@routes.delete("/keys/{key_id}", tags=["keys"])
async def revoke_key(key_id: UUID, request: ApiRequest) -> None:
    """Revoke a key. Other server processes may accept it for up to 5 more seconds."""
    await request.components.keys.revoke(request.org_id, key_id, request.actor)


@routes.post("/orgs", status=201, tags=["keys", "organizations"])
async def create_org(body: schemas.OrgIn, request: ApiRequest) -> schemas.NewOrg:
    """Create an organization. The response contains its first admin key, which is shown only once."""
    org, record, key = await request.components.keys.create_org(body.name, request.key)
    return shape(schemas.NewOrg, org, admin_key=shape(schemas.NewKey, record, key=key))


@routes.get("/orgs", tags=["keys", "organizations"])
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


@routes.get("/audit", tags=["audit"])
async def list_audit(query: schemas.AuditQuery, request: ApiRequest) -> schemas.AuditPage:
    """The audit log: every change made by a person or a program, newest first."""
    page = await request.reader.audit(request.org_id, query.actor, query.action, query.cursor, query.limit)
    return schemas.AuditPage(shapes(schemas.AuditEntry, page.items), pagination=position(page, query.limit))


@routes.post("/sign-in-links", status=201, tags=["console"])
async def create_sign_in_link(request: ApiRequest) -> schemas.SignInLink:
    """Create a link that signs a browser in to the console with your key. The link works once, within 30 minutes, and
    only on the server process that created it."""
    if not request.doorstep.settings.console:
        raise Conflict("the console is turned off; set DOORSTEP_CONSOLE=true to turn it on")
    path = request.http.app.state.links.new(request.key)
    return schemas.SignInLink(path, time(request.doorstep.clock.now() + LASTS))
