"""Search: what an id belongs to, and the fields of payloads and metadata that have an index."""

from __future__ import annotations

from doorstep.api.routing import ApiRequest, Routes
from doorstep.model.org import Org, Permission
from doorstep.operations.shapes import shape, time
from doorstep.schemas import search as schemas

routes = Routes("/v1", "search")


@routes.get("/find", Permission.LOOK)
async def find(query: schemas.FindQuery, request: ApiRequest) -> schemas.FoundItems:
    """Everything with this id. `id` may be a short id: the last eight digits, as the console shows them. Events,
    deliveries and endpoints are found by a short id; alerts and bulk operations only by their whole id."""
    items = await request.components.search.by_id(request.org_id, query.id)
    return schemas.FoundItems(tuple(shape(schemas.FoundItem, one) for one in items))


@routes.get("/search-fields", Permission.LOOK)
async def read_search_fields(request: ApiRequest) -> schemas.SearchFields:
    """The fields of payloads and metadata by which events are found at once."""
    return _shown(await request.components.search.org(request.org_id))


@routes.put("/search-fields", Permission.ADMINISTER)
async def change_search_fields(body: schemas.SearchFieldsIn, request: ApiRequest) -> schemas.SearchFields:
    """Declare the fields of payloads and metadata by which events are found at once. The list replaces the previous
    one. Events that were accepted earlier are still found, by searching in them."""
    return _shown(await request.components.search.declare(request.org_id, body.fields, request.actor))


def _shown(org: Org) -> schemas.SearchFields:
    return schemas.SearchFields(
        tuple(schemas.SearchField(name, time(indexed_from)) for name, indexed_from in org.search_fields.items())
    )
