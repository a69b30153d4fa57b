"""R8: the sending routes, which are served without the framework, answer like an ordinary route.

The same requests go to `POST /v1/events` and to `POST /v1/endpoints`; status, problem and headers must be the same.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from doorstep.api import direct
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND
from doorstep.errors import StoreUnavailable
from doorstep.model.org import Role
from tests.support.api import Api, serving
from tests.support.builders import unused
from tests.support.loop_receiver import Receiver
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scene import Scene

DIRECT, ORDINARY = "/v1/events", "/v1/endpoints"
Headers = tuple[tuple[str, str], ...]


class Given(NamedTuple):
    """A request for either route. `good` stands for a body that the route accepts."""

    name: str
    key: str = "admin"
    headers: Headers = ()
    body: bytes | None = b"good"
    method: str = "POST"
    query: str = ""
    wording_differs: bool = False
    """Whether the detail of the problem names a permission or a limit, which the two routes do not share."""


REQUESTS = [
    Given("a good request"),
    Given("the key as a bearer token", key="", headers=(("Authorization", "bearer {admin}"),)),
    Given("two keys, the first one wrong", headers=(("X-API-Key", "{admin}"),), key="unknown"),
    Given("an empty key and a bearer token", key="empty", headers=(("Authorization", "Bearer {admin}"),)),
    Given("no key", key=""),
    Given("an empty key", key="empty"),
    Given("an unknown key", key="unknown"),
    Given("an impossible key", key="short"),
    Given("a revoked key", key="revoked"),
    Given("an expired key", key="expired"),
    Given("a key without the permission", key="viewer", wording_differs=True),
    Given("a correlation id", headers=(("X-Correlation-Id", "mine-1"),)),
    Given("two correlation ids", headers=(("X-Correlation-Id", "first"), ("X-Correlation-Id", "second"))),
    Given("a correlation id with a blank", headers=(("X-Correlation-Id", "not mine"),)),
    Given("an empty correlation id", headers=(("X-Correlation-Id", ""),)),
    Given("a correlation id that is too long", headers=(("X-Correlation-Id", "x" * 129),)),
    Given("a bad correlation id without a key", key="", headers=(("X-Correlation-Id", "\xe9"),)),
    Given("a bad correlation id with a problem", headers=(("X-Correlation-Id", "a b"),), body=b"{"),
    Given("a correlation id with a problem", headers=(("X-Correlation-Id", "mine-2"),), body=b"{"),
    Given("an unknown parameter", query="?dry_run=1"),
    Given("a repeated parameter", query="?a=1&a=2"),
    Given("an empty query", query="?"),
    Given("a parameter without the permission", key="viewer", query="?a=1", wording_differs=True),
    Given("a parameter without a key", key="", query="?a=1"),
    Given("no JSON", body=b"{"),
    Given("NaN", body=b"NaN"),
    Given("no UTF-8", body=b'{"name": "\xff"}'),
    Given("a body that declares more than is allowed", headers=(("Content-Length", "999999999"),), body=None,
          wording_differs=True),
    Given("a length that is no number", headers=(("Transfer-Encoding", "chunked"),), body=b"1\r\n{\r\n0\r\n\r\n"),
    Given("an unknown field", body=b'{"nonsense": 1}'),
    Given("a value of the wrong type", body=b"7"),
    Given("GET without a key", method="GET", body=None, key=""),
    *(Given(f"the method {method}", method=method, body=None) for method in ("PUT", "PATCH", "DELETE", "OPTIONS")),
    Given("a wrong method without a key", method="PUT", body=None, key=""),
]  # fmt: skip


class Reply(NamedTuple):
    """What the two routes must have in common."""

    status: int
    problem: Any
    headers: Mapping[str, str]


def good_body(path: str) -> bytes:
    if path == DIRECT:
        return b'{"event_type": "order.paid", "payload": 1}'
    return b'{"name": "%s", "url": "http://127.0.0.1:9/"}' % unused("shop").encode()


def reply_to(port: int, path: str, given: Given, keys: Mapping[str, str]) -> Reply:
    """Send a request header by header, because a client would not send all of these."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.putrequest(given.method, path + given.query)
    if given.key:
        connection.putheader("X-API-Key", keys[given.key])
    for name, value in given.headers:
        connection.putheader(name, value.format(**keys))
    body = good_body(path) if given.body == b"good" else given.body
    if body is not None and not any(name == "Transfer-Encoding" for name, _ in given.headers):
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    content = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    connection.close()
    return _comparable(response.status, content, headers, given)


def _comparable(status: int, content: bytes, headers: dict[str, str], given: Given) -> Reply:
    problem = json.loads(content) if status >= 400 and content else None
    if problem is None or given.wording_differs:
        del headers["content-length"]
    if problem is not None and given.wording_differs:
        del problem["detail"]
    del headers["date"]
    headers["x-correlation-id"] = _kind_of_id(headers["x-correlation-id"])
    return Reply(min(status, 201), problem, headers) if status < 300 else Reply(status, problem, headers)


def _kind_of_id(text: str) -> str:
    try:
        return f"a UUID of version {UUID(text).version}"
    except ValueError:
        return text


async def differences(api: Api, requests: Sequence[Given], keys: Mapping[str, str]) -> dict[str, tuple[Reply, Reply]]:
    """The requests that the two routes answer differently, with the two answers."""
    port = int(api.url.rpartition(":")[2])
    found = {}
    for given in requests:
        sent, ordinary = [await asyncio.to_thread(reply_to, port, path, given, keys) for path in (DIRECT, ORDINARY)]
        if sent != ordinary:
            found[given.name] = (sent, ordinary)
    return found


async def keys_of(api: Api, scene: Scene) -> dict[str, str]:
    """A key of each kind."""
    keys = scene.doorstep.components.keys
    _, viewer = await keys.create(DEFAULT_ORG, "viewer", Role.VIEWER, "test")
    revoked, revoked_key = await keys.create(DEFAULT_ORG, "revoked", Role.ADMIN, "test")
    await keys.revoke(DEFAULT_ORG, revoked.key_id, "test")
    _, expired_key = await keys.create(
        DEFAULT_ORG, "expired", Role.ADMIN, "test", expires_at=scene.clock.now() + SECOND
    )
    scene.leap(2)
    return {
        "admin": api.key,
        "viewer": viewer,
        "revoked": revoked_key,
        "expired": expired_key,
        "unknown": "dsk_unknown_to_all",
        "short": "short",
        "empty": "",
    }


@asynccontextmanager
async def set_to(database_url: str, receiver: Receiver, **settings: Any) -> AsyncIterator[tuple[Scene, Api]]:
    """A scene whose Doorstep has these settings, and its API."""
    scene = Scene(database_url, receiver)
    await scene.open(**settings)
    try:
        async with serving(scene) as api:
            yield scene, api
    finally:
        await scene.close()


async def test_the_sending_routes_answer_like_an_ordinary_route(scene: Scene, api: Api) -> None:
    assert await differences(api, REQUESTS, await keys_of(api, scene)) == {}


async def test_a_difference_between_the_routes_would_be_noticed(
    scene: Scene, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await keys_of(api, scene)
    monkeypatch.setattr(direct, "correlate", lambda given, new_id: (given or str(new_id()), None))
    assert "a correlation id with a blank" in await differences(api, REQUESTS, keys)
    monkeypatch.undo()
    monkeypatch.setattr(direct, "with_own_headers", lambda given, correlation_id: [*given, (b"x-correlation-id", b"x")])
    assert len(await differences(api, REQUESTS, keys)) > len(REQUESTS) // 2
    monkeypatch.undo()
    monkeypatch.setattr(direct, "check", lambda key, access: None)
    assert "a key without the permission" in await differences(api, REQUESTS, keys)


async def test_a_batch_is_refused_like_a_single_event(scene: Scene, api: Api) -> None:
    port, keys = int(api.url.rpartition(":")[2]), await keys_of(api, scene)
    problems = [one for one in REQUESTS if one.body != b"good" and one.method == "POST"]
    for given in [*problems, Given("no key", key="", body=b"[]"), Given("no permission", key="viewer", body=b"[]")]:
        replies = [await asyncio.to_thread(reply_to, port, path, given, keys) for path in (DIRECT, "/v1/events/batch")]
        assert [reply.status for reply in replies] == [replies[0].status] * 2, given.name


@pytest.mark.parametrize(
    ("settings", "key"), [({"requests_per_second": 0.5}, "admin"), ({"failed_keys_per_second": 0.5}, "unknown")]
)
async def test_each_route_draws_on_the_same_limit(
    database_url: str, receiver: Receiver, settings: dict[str, float], key: str
) -> None:
    async with set_to(database_url, receiver, **settings) as (_, api):
        port, keys, given = (
            int(api.url.rpartition(":")[2]),
            {"admin": api.key, "unknown": "dsk_unknown"},
            Given("", key),
        )
        first = await asyncio.to_thread(reply_to, port, DIRECT, given, keys)
        assert first.status == (201 if key == "admin" else 401)
        refused = [await asyncio.to_thread(reply_to, port, path, given, keys) for path in (ORDINARY, DIRECT)]
        assert refused[0] == refused[1]
        assert (refused[0].status, refused[0].headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize("error", [StoreUnavailable("down"), RuntimeError("a bug")])
async def test_errors_of_the_store_and_bugs_are_answered_and_logged_alike(
    scene: Scene, api: Api, error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(scene.doorstep.components.store, "accept", fail)
    monkeypatch.setattr(scene.doorstep.components.store, "write", fail)
    given = Given("", headers=(("X-Correlation-Id", "mine-3"),))
    replies = [
        await asyncio.to_thread(reply_to, int(api.url.rpartition(":")[2]), path, given, {"admin": api.key})
        for path in (DIRECT, ORDINARY)
    ]
    assert replies[0] == replies[1]
    logged = [record for record in caplog.records if record.message == "a request failed"]
    if isinstance(error, StoreUnavailable):
        assert (replies[0].status, replies[0].headers["retry-after"], logged) == (503, "1", [])
    else:
        assert replies[0].status == 500
        assert [vars(record)["correlation_id"] for record in logged] == ["mine-3"] * 2


async def test_the_debug_log_has_the_same_fields_and_names_the_route(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "doorstep.api")
    for path, given in ((DIRECT, b"{"), (ORDINARY, b"{")):
        await api.post(f"{path}?secret=1", given, X_Correlation_Id="mine-4")
    lines = [vars(record) for record in caplog.records if record.message == "a request was answered"]
    assert [line["correlation_id"] for line in lines] == ["mine-4"] * 2
    direct_fields, ordinary_fields = (line["fields"] for line in lines)
    assert direct_fields.keys() == ordinary_fields.keys()
    assert {**direct_fields, "milliseconds": 0} == {"method": "POST", "route": DIRECT, "status": 422, "milliseconds": 0}
    assert direct_fields["milliseconds"] > 0


async def test_a_key_that_is_revoked_stops_sending_at_once(scene: Scene, api: Api) -> None:
    record, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "sender", Role.PUBLISHER, "test")
    sender = api.with_key(key)
    await sender.send()
    assert (await api.delete(f"/v1/keys/{record.key_id}")).status == 204
    assert (await sender.post(DIRECT, {"event_type": "order.paid", "payload": 1})).status == 401
