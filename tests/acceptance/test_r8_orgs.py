"""R8.5: organizations are renamed and deleted by admins of the default organization."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import NotFound
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import DeadLetterFilter, Orgs
from doorstep.services.maintenance import MessageCleaner
from tests.support.api import Api
from tests.support.scene import Scene, until


async def an_org(api: Api) -> tuple[str, Api]:
    """Another organization, and its API."""
    made = (await api.post("/v1/orgs", {"name": "other"})).json
    return made["org_id"], api.with_key(made["admin_key"]["key"])


async def audited(api: Api, action: str) -> list[dict[str, Any]]:
    return [one for one in (await api.get("/v1/audit")).json["audit"] if one["action"] == action]


async def test_an_organization_is_renamed(api: Api) -> None:
    org_id, _ = await an_org(api)
    renamed = await api.patch(f"/v1/orgs/{org_id}", {"name": "better"})
    assert (renamed.status, renamed.json["name"]) == (200, "better")
    assert [one["name"] for one in (await api.get("/v1/orgs")).json["orgs"]] == ["default", "better"]
    (entry,) = await audited(api, "org.rename")
    assert (entry["subjects"], entry["result"], entry["reason"]) == ([org_id], "better", "was other")
    assert (await api.patch(f"/v1/orgs/{org_id}", {"name": ""})).status == 422


async def test_a_deleted_organization_is_out_of_reach_at_once(scene: Scene, api: Api) -> None:
    org_id, theirs = await an_org(api)
    await theirs.endpoint(scene.receiver.url(), name="shop")
    event_id = await theirs.send()
    await theirs.until_status(event_id, "delivered")
    second = await scene.open()
    assert (await api.delete(f"/v1/orgs/{org_id}")).status == 204
    for path in ("/v1/events", f"/v1/events/{event_id}", "/v1/endpoints", "/v1/keys", "/v1/audit"):
        assert (await theirs.get(path)).status == 401
    assert (await theirs.post("/v1/events", {"event_type": "order.paid", "payload": 1})).status == 401
    assert [one["name"] for one in (await api.get("/v1/orgs")).json["orgs"]] == ["default"]
    for doorstep in (scene.doorstep, second):
        with pytest.raises(NotFound):
            await doorstep.send("order.paid", {}, org_id=UUID(org_id))
    (entry,) = await audited(api, "org.delete")
    assert (entry["subjects"], entry["result"]) == ([org_id], "other")
    assert (await api.delete(f"/v1/orgs/{org_id}")).status == 404, "it is gone"
    assert (await api.patch(f"/v1/orgs/{org_id}", {"name": "again"})).status == 404


async def test_an_organization_with_open_deliveries_is_deleted_only_by_force(scene: Scene, api: Api) -> None:
    org_id, theirs = await an_org(api)
    scene.receiver.says(503)
    await theirs.endpoint(scene.receiver.url(), policy=[3600])
    await api.endpoint(scene.receiver.url(), policy=[3600])
    mine, other = await api.send(), await theirs.send()
    await theirs.until_delivery(other, attempts=1)
    refused = await api.delete(f"/v1/orgs/{org_id}")
    assert refused.status == 409 and "1 open deliveries" in refused.json["detail"]
    assert (await theirs.get("/v1/endpoints")).status == 200, "nothing has changed"
    assert (await api.delete(f"/v1/orgs/{org_id}?force=true")).status == 204
    store, theirs_id = scene.doorstep.components.store, UUID(org_id)

    async def ended() -> bool:
        return len((await store.page(theirs_id, DeadLetterFilter())).items) == 1

    await until(ended, "the delivery of the deleted organization as a dead letter")
    assert (await api.delivery_of(mine))["state"] == DeliveryState.PENDING, "another organization notices nothing"
    components = scene.doorstep.components
    cleaner = MessageCleaner(store, components.deliveries, scene.clock, components.tuning)
    await cleaner.run_once()
    assert (await store.page(theirs_id, DeadLetterFilter())).items == ()


async def test_the_default_and_the_reserved_organization_cannot_be_deleted(scene: Scene, api: Api) -> None:
    await api.post("/v1/channels", {"name": "ops", "kind": "webhook", "target": scene.receiver.url()})
    kept = await scene.doorstep.components.store.find(None, Orgs())
    assert (await api.delete(f"/v1/orgs/{DEFAULT_ORG}?force=true")).status == 409
    (reserved,) = (org.org_id for org in kept if org.org_id != DEFAULT_ORG)
    assert (await api.delete(f"/v1/orgs/{reserved}?force=true")).status == 404
    assert await scene.doorstep.components.store.find(None, Orgs()) == kept


async def test_only_admins_of_the_default_organization_rename_and_delete_organizations(api: Api) -> None:
    first, theirs = await an_org(api)
    second, _ = await an_org(api)
    operator = (await api.post("/v1/keys", {"name": "operator", "role": "operator"})).json["key"]
    for one in (theirs, api.with_key(operator)):
        for org_id in (first, second):
            assert (await one.patch(f"/v1/orgs/{org_id}", {"name": "mine"})).status == 403
            assert (await one.delete(f"/v1/orgs/{org_id}?force=true")).status == 403
