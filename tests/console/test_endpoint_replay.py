"""A replay to an endpoint over HTTP: it replays exactly the events that were counted and shown."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Instant, from_datetime, to_iso
from doorstep.model.bulk import Bulk, BulkFilter, BulkKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from tests.console.endpoint_pages import page_of
from tests.console.markup import Element, elements
from tests.console.visiting import Console, Shown
from tests.support.scene import Scene, until


async def delivered(scene: Scene, endpoint: Endpoint, count: int) -> None:
    for delivery in await scene.send_to(endpoint, count):
        await scene.until_state(delivery, DeliveryState.DELIVERED)


async def counted(console: Console, endpoint: Endpoint, since: Instant, before: Instant) -> Shown:
    return await console.get(f"{page_of(endpoint)}/replay?created_from={to_iso(since)}&created_before={to_iso(before)}")


async def bulks(scene: Scene) -> list[Bulk]:
    return list((await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items)


def hidden(shown: Shown) -> dict[str, object]:
    """The hidden fields that a browser submits with the page's form."""
    found = [one.attributes for one in elements(shown.source) if is_hidden(one)]
    return {one["name"]: one["value"] for one in found}


def entered(shown: Shown) -> dict[str, str]:
    """The editable fields of the page's form."""
    found = [one for one in elements(shown.source) if one.tag in ("input", "select") and "name" in one.attributes]
    own = [one for one in found if one.attributes.get("id") != "search" and not is_hidden(one)]
    return {one.attributes["name"]: one.attributes.get("value", "") for one in own}


def is_hidden(one: Element) -> bool:
    return one.attributes.get("type") == "hidden"


async def test_a_replay_counts_first_and_then_sends_the_events_of_a_range_again(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint("/again")
    since = scene.clock.now()
    await delivered(scene, endpoint, 3)
    scene.leap(60)
    question = await counted(console, endpoint, since, scene.clock.now())
    assert "Replay 3 events to /again?" in question.text
    shown = await console.post(f"{page_of(endpoint)}/replay", hidden(question) | {"reason": "they lost them"})
    (bulk,) = await bulks(scene)
    assert (bulk.kind, bulk.endpoint_id, bulk.total, bulk.reason) == (
        BulkKind.REPLAY, endpoint.endpoint_id, 3, "they lost them"
    )  # fmt: skip
    assert shown.path == f"/console/bulk/{bulk.bulk_id}"
    twice = await console.post(f"{page_of(endpoint)}/replay", hidden(question) | {"reason": "they lost them"})
    assert (twice.path, twice.said) == (shown.path, "Already started: this form was sent before.")
    assert len(await bulks(scene)) == 1
    await until(lambda: len(scene.receiver.requests) == 6, "three events again")


async def test_what_was_counted_cannot_be_changed_beside_the_count(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    since = from_datetime(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    question = await counted(console, endpoint, since, scene.clock.now())
    assert set(entered(question)) == {"rate", "reason"}
    (again,) = re.findall(r'href="([^"]*change=yes)"', question.source)
    shown = await console.get(html.unescape(again))
    assert "Count" in shown.text
    assert entered(shown)["created_from"] == "2026-01-02T03:04:05"


async def test_counting_leaves_nothing_in_the_url_but_the_range(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    shown = await console.get(f"{page_of(endpoint)}/replay")
    found = elements(shown.source)
    (form,) = [one for one in found if one.attributes.get("id") == "question"]
    names = {one.attributes["name"] for one in found if one.form == form.form and one.tag in ("input", "select")}
    assert form.attributes["method"] == "get"
    assert names == {"created_from", "created_before", "event_type", "status"}


async def test_what_is_accepted_after_the_count_is_not_replayed(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint("/again")
    since = scene.clock.now()
    await delivered(scene, endpoint, 1)
    scene.leap(60)
    question = await counted(console, endpoint, since, scene.clock.now() + 3_600_000_000)
    scene.leap(60)
    await delivered(scene, endpoint, 2)
    await console.post(f"{page_of(endpoint)}/replay", hidden(question))
    (bulk,) = await bulks(scene)
    assert bulk.total == 1


async def test_a_rate_that_cannot_be_keeps_the_range_and_what_was_entered(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    question = await counted(console, endpoint, scene.clock.now() - 1, scene.clock.now())
    shown = await console.post(
        f"{page_of(endpoint)}/replay", hidden(question) | {"rate": "-1", "reason": "they lost them"}
    )
    assert shown.status == 422
    assert 'value="they lost them"' in shown.source
    assert hidden(shown)["created_from"] == hidden(question)["created_from"]
    assert await bulks(scene) == []


async def test_a_replay_of_no_range_asks_for_one(scene: Scene, console: Console, subtests: pytest.Subtests) -> None:
    for query in ("created_from=x", "created_from=2026-01-02&created_before=2026-01-01", "created_from=2026-01-02"):
        with subtests.test(query=query):
            endpoint = await scene.endpoint()
            await console.get(f"{page_of(endpoint)}/pause")
            assert "Count" in (await console.get(f"{page_of(endpoint)}/replay")).text
            assert (await console.get(f"{page_of(endpoint)}/replay?{query}")).status == 422
            fields: dict[str, object] = {
                name: value for name, _, value in (one.partition("=") for one in query.split("&"))
            }
            assert (await console.post(f"{page_of(endpoint)}/replay", fields)).status == 422
            assert await bulks(scene) == []
