"""R8.1: events are found by endpoint, keys, and values in payload and metadata; anything is found by its id."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from doorstep.client import AsyncClient
from tests.support.api import Api, lasting
from tests.support.scene import Scene


async def found(api: Api, **query: str) -> list[str]:
    named = {name.replace("__", "[", 1) + "]" if "__" in name else name: value for name, value in query.items()}
    return [event["event_id"] for event in await api.all(f"/v1/events?{urlencode(named)}", "events")]


async def test_events_are_found_by_endpoint_keys_payload_and_metadata(scene: Scene, api: Api) -> None:
    shop = await api.endpoint(scene.receiver.url(), event_types=["order.*"])
    order = await api.send(
        "order.paid",
        {"order": {"id": 42}},
        metadata={"customer": "7"},
        ordering_key="customer-7",
        idempotency_key="first",
    )
    trip = await api.send("trip.booked", {"order": {"id": 43}}, metadata={"customer": "8"})
    answer = await api.post("/v1/events", {"event_type": "trip.ended", "payload": 1}, X_Correlation_ID="my-request")
    ended = answer.json["event_id"]
    assert await found(api, endpoint=shop["endpoint_id"]) == await found(api, endpoint=shop["name"]) == [order]
    assert await found(api, correlation_id="my-request") == [ended]
    assert await found(api, ordering_key="customer-7") == await found(api, idempotency_key="first") == [order]
    for _ in range(2):
        assert await found(api, **{"payload__order.id": "42"}) == [order]
        assert await found(api, metadata__customer="8") == [trip]
        assert await found(api, **{"payload__order.id": "43", "metadata__customer": "7"}) == []
        assert await found(api, **{"payload__order.id": "43", "event_type": "trip.*"}) == [trip]
        declared = await api.request("PUT", "/v1/search-fields", {"fields": ["payload.order.id", "metadata.customer"]})
        assert [one["name"] for one in declared.json["fields"]] == ["payload.order.id", "metadata.customer"]
    assert (await api.get("/v1/search-fields")).json == declared.json
    assert (await api.all("/v1/audit?action=org.search_fields", "audit"))[0]["result"]

    async with AsyncClient(api.url, api.key) as client:
        page = await client.events.page(payload={"order.id": 42}, metadata={"customer": 7}, endpoint=shop["name"])
        assert [str(one.event_id) for one in page] == [order]
        assert (page.pagination.examined, page.pagination.searched_until) == (1, None)  # type: ignore[attr-defined]
        assert [one.name for one in (await client.set_search_fields([])).fields] == []


async def test_an_id_whole_or_short_leads_to_what_has_it(scene: Scene, api: Api) -> None:
    shop = await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    delivery_id = (await api.delivery_of(event_id))["delivery_id"]
    wanted = [("event", event_id, None), ("delivery", delivery_id, event_id), ("endpoint", shop["endpoint_id"], None)]
    for kind, item_id, of_event in wanted:
        for text in (item_id, item_id[-8:], item_id[-8:].upper()):
            (item,) = (await api.get(f"/v1/find?id={text}")).json["items"]
            assert (item["kind"], item["item_id"], item["event_id"]) == (kind, item_id, of_event)
    assert (await api.get("/v1/find?id=00000000")).json == {"items": []}
    await api.delete(f"/v1/events/{event_id}")
    assert (await api.get(f"/v1/find?id={event_id[-8:]}")).json == {"items": []}


async def test_nothing_of_another_organization_is_found(scene: Scene, api: Api) -> None:
    await api.endpoint(scene.receiver.url())
    event_id = await api.send(payload={"id": 1}, metadata={"id": 1}, ordering_key="a", idempotency_key="a")
    correlation = (await api.get(f"/v1/events/{event_id}")).json["correlation_id"]
    await api.request("PUT", "/v1/search-fields", {"fields": ["payload.id"]})
    theirs = api.with_key((await api.post("/v1/orgs", {"name": "them"})).json["admin_key"]["key"])
    filters = {"correlation_id": correlation, "ordering_key": "a", "idempotency_key": "a"}
    filters |= {"payload__id": "1", "metadata__id": "1"}
    for name, value in filters.items():
        assert await found(api, **{name: value}) == [event_id], name
        assert await found(theirs, **{name: value}) == [], name
    assert (await theirs.get("/v1/events?endpoint=shop")).status == 422
    assert (await theirs.get(f"/v1/find?id={event_id[-8:]}")).json == {"items": []}
    assert (await theirs.get(f"/v1/find?id={event_id}")).json == {"items": []}
    assert (await theirs.get("/v1/search-fields")).json == {"fields": []}


@lasting
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("payload=42", "payload"),
        ("payload[]=42", "payload[]"),
        ("payload[order.id=42", "payload[order.id"),
        ("payload[order..id]=42", "payload"),
        ("payload[id]=", "payload.id"),
        ("payload[id]=1&payload[id]=2", "payload[id]"),
        ("metadata[a b]=1", "metadata"),
        ("limit[id]=1", "limit[id]"),
        ("order[id]=1", "order[id]"),
        (f"payload[id]={'x' * 201}", "payload.id"),
        ("&".join(f"payload[a{n}]=1" for n in range(9)), "payload"),
        ("endpoint=nobody", "endpoint"),
        ("correlation_id=", "correlation_id"),
        ("ordering_key=%00", "ordering_key"),
    ],
)
async def test_a_search_that_is_asked_for_wrongly_names_the_parameter(lasting_api: Api, query: str, field: str) -> None:
    answer = await lasting_api.get(f"/v1/events?{quote(query, safe='=&%')}")
    assert (answer.status, [error["field"] for error in answer.json.get("errors", [])]) == (422, [field])


@lasting
@pytest.mark.parametrize(
    "fields",
    [["order.id"], ["payload"], ["payload.a b"], [f"payload.a{n}" for n in range(9)], ["payload.a"] * 9],
)
async def test_fields_that_cannot_have_an_index_are_refused(lasting_api: Api, fields: list[str]) -> None:
    answer = await lasting_api.request("PUT", "/v1/search-fields", {"fields": fields})
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "search_fields")


@lasting
async def test_what_is_no_id_is_refused(lasting_api: Api) -> None:
    for text in ("", "rubbish", "1234567", "123456789", "x" * 101):
        assert (await lasting_api.get(f"/v1/find?id={text}")).status == 422
    assert (await lasting_api.get("/v1/find")).status == 422
