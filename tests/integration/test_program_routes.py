"""A program's own routes in the server, its defaults, its views and its lines of the log."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, SecretStr

from doorstep import CircuitRules, Doorstep, Pipeline, Settings, Sql, Stage
from doorstep.api.application import create_application
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.serve import banner
from doorstep.encryption import new_secret_key
from doorstep.errors import ConfigError, NotRetryable
from doorstep.model.org import Role
from doorstep.web import Caller, allowed, json_body, router
from tests.support.api import Api, listening
from tests.support.postgres_server import PostgresServer

routes = APIRouter(prefix="/orders")


class Order(BaseModel):
    packets: int


@routes.get("")
async def orders(caller: Annotated[Caller, allowed("look")]) -> dict[str, Any]:
    return {"name": caller.name, "role": caller.role, "acts": caller.may("act")}


@routes.get("/own")
async def own_orders(caller: Annotated[Caller, allowed("status", own=True)]) -> dict[str, Any]:
    return {"user": caller.user_id, "correlation_id": caller.correlation_id}


@routes.post("/{order}/")
async def change(order: str, body: Order, caller: Annotated[Caller, allowed("act")]) -> None:
    if order == "tea":
        raise HTTPException(418, "this order is a tea pot")
    raise NotRetryable(f"order {order} is shipped")


@routes.post("/packets")
async def packets(body: Annotated[list[int], json_body(list[int], [7])]) -> list[int]:
    return body


@routes.get("/public")
async def public() -> str:
    return "open"


@routes.get("/{order}/deliveries")
async def deliveries_of(order: str, caller: Annotated[Caller, allowed("status", own=True)]) -> dict[str, Any]:
    status = await caller.client.events.status(order)
    return {"status": status.status, "by": caller.client.events is not None}


replacing = APIRouter()


@replacing.get("/v1/inbox")
async def inbox(caller: Annotated[Caller, allowed("inbox", own=True)]) -> list[str]:
    return ["mine"]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    doorstep = Doorstep("memory://")
    doorstep.server.include_router(routes, tags=["orders"])
    doorstep.server.include_router(replacing)
    parcels = Pipeline("parcel", first="new", stages=[Stage("packing", failed="torn")], last="sent")
    doorstep.add(parcels)
    doorstep.server.include_router(router(parcels, api_keys=True), prefix="/parcels")
    async with served(doorstep) as it:
        yield it


@asynccontextmanager
async def served(doorstep: Doorstep) -> AsyncIterator[Api]:
    await doorstep.open()
    try:
        _, key = await doorstep.components.keys.create(DEFAULT_ORG, "test", Role.ADMIN, "test")
        async with listening(create_application(doorstep)) as port:
            yield Api(port, key)
    finally:
        await doorstep.close()


async def key_of(api: Api, role: str, user: str | None = None) -> Api:
    made = await api.post("/v1/keys", {"name": role, "role": role, "user_id": user})
    assert (made.status, made.json["user_id"]) == (201, user)
    return api.with_key(made.json["key"])


async def test_a_route_gets_its_caller_and_a_correlation_id(api: Api) -> None:
    assert (await api.get("/orders")).json == {"name": "test", "role": "admin", "acts": True}
    answer = await api.request("GET", "/orders/own", X_Correlation_Id="request-1")
    assert answer.json == {"user": None, "correlation_id": "request-1"}


async def test_without_a_key_or_a_permission_a_route_is_closed(api: Api) -> None:
    refused = await api.with_key("unknown-key").get("/orders")
    assert (refused.status, refused.json["type"]) == (401, "urn:doorstep:problem:unauthenticated")
    assert (await (await key_of(api, "publisher")).get("/orders")).status == 403
    assert (await api.with_key("unknown-key").get("/orders/public")).json == "open"


async def test_a_key_with_a_user_may_use_only_the_routes_that_say_so(api: Api) -> None:
    ada = await key_of(api, "viewer", "ada")
    assert (await ada.get("/orders")).status == 403
    assert (await ada.get("/orders/own")).json["user"] == "ada"


async def test_only_the_routes_of_a_program_are_found_with_a_slash_at_the_end(api: Api) -> None:
    async with served(Doorstep("memory://")) as plain:
        for one in (plain, api):
            for path in ("/openapi.json", "/v1/events"):
                assert [(await one.get(path)).status, (await one.get(f"{path}/")).status] == [200, 404], path


async def test_a_route_is_found_with_and_without_a_slash(api: Api) -> None:
    for path in ("/orders", "/orders/", "/orders/own", "/orders/own/"):
        assert (await api.get(path)).status == 200, path
    for path in ("/orders/7", "/orders/7/"):
        assert (await api.post(path, {"packets": 1})).status == 400, path
    assert (await api.get("/orders/own//")).status == 404


async def test_errors_are_problems_with_the_words_of_the_program(api: Api) -> None:
    problems = {
        "/orders/7/": (400, "urn:doorstep:problem:not_retryable", "order 7 is shipped"),
        "/orders/tea/": (418, "urn:doorstep:problem:bad_request", "this order is a tea pot"),
    }
    for path, (status, kind, detail) in problems.items():
        answer = await api.post(path, {"packets": 1})
        assert (answer.status, answer.json["type"], answer.json["detail"]) == (status, kind, detail)
        assert answer.json["status"] == status
    invalid = await api.post("/orders/7/", {"packets": "many"})
    assert (invalid.status, invalid.json["errors"][0]["field"]) == (422, "packets")


async def test_an_empty_body_is_the_default_of_the_route(api: Api) -> None:
    assert (await api.post("/orders/packets", [1, 2])).json == [1, 2]
    assert (await api.post("/orders/packets")).json == [7]
    assert (await api.post("/orders/packets", ["many"])).status == 422


async def test_a_body_is_limited_before_the_framework_reads_it(api: Api) -> None:
    fits = b'{"packets": 1, "note": "' + b"a" * 256 * 1024 + b'"}'
    assert (await api.post("/orders/7/", fits, Content_Type="application/json")).status == 400
    for path in ("/orders/7", "/orders/7/"):
        refused = await api.post(path, fits + b" " * 1024 * 1024, Content_Type="application/json")
        assert (refused.status, refused.json["type"]) == (413, "urn:doorstep:problem:too_large")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))
    writer.write(b"POST /orders/7/ HTTP/1.1\r\nHost: a\r\nX-API-Key: " + api.key.encode())
    writer.write(b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")  # without a declared length, and not ended
    assert await asyncio.wait_for(reader.read(12), 10) == b"HTTP/1.1 413"
    writer.close()


def test_a_route_under_v1_needs_a_dependency_that_checks_the_key() -> None:
    def created(**options: Any) -> object:
        open_routes = APIRouter()
        open_routes.get("/v1/orders/{order}")(public)
        doorstep = Doorstep("memory://")
        doorstep.server.include_router(open_routes, **options)
        return create_application(doorstep)

    with pytest.raises(ConfigError, match="got /v1/orders/{order} without one"):
        created()
    assert created(dependencies=[allowed("look")])


async def test_a_new_path_under_v1_has_only_the_methods_of_its_routes() -> None:
    own = APIRouter(dependencies=[allowed("look")])
    own.get("/v1/orders/{order}")(public)
    doorstep = Doorstep("memory://")
    doorstep.server.include_router(own)
    async with served(doorstep) as api:
        assert (await api.get("/v1/orders/7")).json == "open"
        assert (await api.delete("/v1/orders/7")).headers["allow"] == "GET"


async def test_the_routes_of_a_pipeline_require_keys_of_its_organization(api: Api) -> None:
    assert (await api.with_key("unknown-key").get("/parcels")).status == 401
    assert (await (await key_of(api, "publisher")).get("/parcels")).status == 403
    viewer = await key_of(api, "viewer")
    for path in ("/parcels", "/parcels/"):
        assert (await viewer.get(path)).json["parcels"] == []
    assert (await viewer.get("/parcels/p1")).status == (await viewer.get("/parcels/p1/history")).status == 404
    for act in ("retry", "approve", "reject"):
        assert (await viewer.post(f"/parcels/p1/{act}")).status == 403
        refused = await api.post(f"/parcels/p1/{act}")
        assert (refused.status, refused.json["detail"]) == (404, "no parcel p1")
    assert (await viewer.request("DELETE", "/parcels/p1")).status == 403
    other = api.with_key((await api.post("/v1/orgs", {"name": "other"})).json["admin_key"]["key"])
    refused = await other.get("/parcels")
    assert (refused.status, refused.json["detail"]) == (404, "no pipeline parcel")


async def test_a_route_may_replace_one_of_ours_and_the_others_stay(api: Api) -> None:
    assert (await api.get("/v1/inbox")).json == ["mine"]
    assert (await api.get("/v1/events")).json["events"] == []
    assert (await api.post("/v1/inbox")).status == 405
    described = (await api.get("/openapi.json")).json["paths"]
    assert described["/orders"]["get"]["tags"] == ["orders"]
    assert (described["/v1/inbox"]["get"]["operationId"], "post" in described["/v1/events"]) == (
        "inbox_v1_inbox_get",
        True,
    )


async def test_a_route_may_replace_one_that_is_served_before_the_framework() -> None:
    sending = APIRouter()

    @sending.post("/v1/events")
    async def place(caller: Annotated[Caller, allowed("send")]) -> dict[str, str]:
        receipt = await caller.client.send("order.placed", 1)  # the client's API keeps Doorstep's own route
        return {"order_id": str(receipt.event_id)}

    doorstep = Doorstep("memory://")
    doorstep.server.include_router(sending)
    async with served(doorstep) as api:
        for path in ("/v1/events", "/v1/events/"):
            answer = await api.post(path, {"event_type": "order.paid", "payload": 1})
            assert (answer.status, list(answer.json)) == (200, ["order_id"]), path
            event = await api.get(f"/v1/events/{answer.json['order_id']}")
            assert event.json["event_type"] == "order.placed"


async def test_a_route_can_do_what_its_caller_may_do(api: Api) -> None:
    ada, ben = await key_of(api, "consumer", "ada"), await key_of(api, "consumer", "ben")
    event_id = await ada.send("order.paid")
    assert (await ada.get(f"/orders/{event_id}/deliveries")).json == {"status": "received", "by": True}
    refused = await ben.request("GET", f"/orders/{event_id}/deliveries", X_Correlation_Id="request-2")
    assert (refused.status, refused.json["type"]) == (404, "urn:doorstep:problem:not_found")
    assert refused.headers["x-correlation-id"] == "request-2"
    assert 'route="/v1/events/{event_id}/status"' not in (await api.get("/metrics")).body.decode()


async def test_requests_are_counted_by_route_and_status(api: Api) -> None:
    await api.get("/orders/own")
    await api.get("/v1/events/0")
    text = (await api.get("/metrics")).body.decode()
    for route, status in (("/orders/own", 200), ("/v1/events/{event_id}", 404)):
        labels = f'{{method="GET",route="{route}",status="{status}"}}'
        assert f"doorstep_http_request_seconds_count{labels} 1.0" in text


async def test_new_endpoints_get_the_defaults_of_the_program_unless_their_creator_sets_the_field() -> None:
    doorstep = Doorstep(
        "memory://",
        policy={"delays": [60.0, 300.0], "jitter": 0, "name": "ours", "ignore_retry_after": True},
        endpoint_defaults={"retry_on": ["*"], "circuit": CircuitRules(probe_seconds_min=300)},
    )

    @doorstep.handler("order.*")
    def pack(event: object) -> None: ...

    await doorstep.open()
    try:
        plain, _ = await doorstep.create_endpoint(name="plain", url="https://shop.example/")
        own, _ = await doorstep.create_endpoint(name="own", url="https://shop.example/", retry_on=["GONE"])
        handler = next(one for one in await doorstep.endpoints() if one.name == "pack")
        assert [tuple(one.retry_on) for one in (plain, own, handler)] == [("*",), ("GONE",), ("*",)]
        assert [one.circuit.probe_seconds_min for one in (plain, own, handler)] == [300, 300, 300]
        assert doorstep.components.tuning.policy.delays == (60.0, 300.0)
    finally:
        await doorstep.close()


async def test_a_program_creates_views_and_replaces_them_when_they_change(tmp_path: Path) -> None:
    def program(column: str) -> Doorstep:
        doorstep = Doorstep(f"sqlite:///{tmp_path}/doorstep.db")

        @doorstep.server.sql("sent")
        def sent(sql: Sql) -> list[str]:
            times = (
                f"{sql.uuid('uid')} AS event_id, {sql.time('created_at')} AS created_at, {sql.json('payload')} AS body"
            )
            return sql.view("sent", f"SELECT {times}, event_type AS {column} FROM doorstep_events")

        return doorstep

    async with program("kind") as doorstep:
        receipt = await doorstep.send("order.paid", {"n": 1})
    with sqlite3.connect(tmp_path / "doorstep.db") as database:
        (row,) = database.execute("SELECT event_id, created_at, body, kind FROM sent")
    at = f"{receipt.created_at:%Y-%m-%dT%H:%M:%S.%f}Z"
    assert row == (str(receipt.event_id), at, '{"n":1}', "order.paid")
    async with program("type"):
        pass
    with sqlite3.connect(tmp_path / "doorstep.db") as database:
        assert database.execute("SELECT type FROM sent").fetchall() == [("order.paid",)]


async def test_a_view_shows_an_erased_payload_as_null(tmp_path: Path) -> None:
    doorstep = Doorstep(f"sqlite:///{tmp_path}/doorstep.db")

    @doorstep.server.sql("bodies")
    def bodies(sql: Sql) -> list[str]:
        return sql.view("bodies", f"SELECT {sql.json('payload')} AS body FROM doorstep_events")

    async with served(doorstep) as api:
        event_id = await api.send("order.paid", {"n": 1})
        assert (await api.delete(f"/v1/events/{event_id}")).status == 204
    with sqlite3.connect(tmp_path / "doorstep.db") as database:
        assert database.execute("SELECT body FROM bodies").fetchall() == [(None,)]


async def test_an_error_in_a_definition_names_it(tmp_path: Path) -> None:
    doorstep = Doorstep(f"sqlite:///{tmp_path}/doorstep.db")
    doorstep.server.sql("sent")(lambda sql: ["CREATE VIEW sent AS SELEKT 1"])
    with pytest.raises(ConfigError, match="the definition sent in SQL: .*SELEKT"):
        await doorstep.open()
    await doorstep.close()


@pytest.mark.full
async def test_a_view_on_postgresql_has_the_privileges_of_its_reader_and_keeps_its_grants(
    postgres_server: PostgresServer,
) -> None:
    url, secret_key = postgres_server.url("program_views"), SecretStr(new_secret_key())

    def program(columns: str) -> Doorstep:
        doorstep = Doorstep(Settings(database_url=url, secret_key=secret_key))

        @doorstep.server.sql("sent")
        def sent(sql: Sql) -> list[str]:
            return sql.view("sent", f"SELECT {columns}, {sql.json('payload')} AS body FROM doorstep_events")

        return doorstep

    def read(scope: str) -> list[Any]:
        superuser = postgres_server.url("program_views", role="postgres")
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("SET ROLE view_reader")
            connection.execute("SELECT set_config('doorstep.org', %s, false)", (scope,))
            return connection.execute("SELECT event_type FROM sent").fetchall()

    postgres_server.create_database("program_views")
    try:
        async with program("event_type") as doorstep:
            await doorstep.send("order.paid", 1)
        postgres_server.sql("CREATE ROLE view_reader; GRANT SELECT ON sent TO view_reader", database="program_views")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="doorstep_events"):
            read("*")
        grant = "GRANT SELECT (event_type, payload) ON doorstep_events TO view_reader"
        postgres_server.sql(grant, database="program_views")
        assert (read("*"), read("0")) == ([("order.paid",)], [])
        async with program("lower(event_type) AS event_type"):
            assert read("*") == [("order.paid",)]
        async with program("org_id, event_type"):  # a view cannot get another first column in place
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="view sent"):
                read("*")
    finally:
        postgres_server.drop_database("program_views")
        postgres_server.sql("DROP ROLE IF EXISTS view_reader")


def test_the_name_of_a_view_does_not_begin_like_our_tables() -> None:
    with pytest.raises(ConfigError, match="doorstep_"):
        Doorstep("memory://").server.sql("doorstep_events")


async def test_the_program_may_print_its_own_first_command() -> None:
    doorstep = Doorstep(Settings(database_url="memory://"))

    @doorstep.server.startup_message
    def message(url: str, key: str) -> list[str]:
        return [f"{url}/orders {key}"]

    lines = list(banner(doorstep, "http://127.0.0.1:1", None))
    assert lines[-1] == "http://127.0.0.1:1/orders $DOORSTEP_ADMIN_KEY"
