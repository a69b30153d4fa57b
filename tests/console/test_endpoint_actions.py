"""Actions on an endpoint over HTTP: pause, resume, test, new secret, delete."""

from __future__ import annotations

import html
import re

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND, to_iso
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.listing import DeadLetterFilter
from tests.console.endpoint_pages import ENDPOINTS, SECRET, audited, held, page_of, stored
from tests.console.visiting import Console
from tests.support.scene import Scene, until


async def test_a_pause_holds_with_a_reason_and_resuming_lets_go(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="shop")
    assert "Pause shop?" in (await console.get(f"{page_of(endpoint)}/pause")).text
    shown = await console.post(f"{page_of(endpoint)}/pause", reason="they migrate")
    assert shown.said == "shop is paused."
    assert "they migrate" in shown.text
    assert (await stored(scene, endpoint)).state is EndpointState.PAUSED
    (delivery,) = await scene.send_to(endpoint)
    assert "1 delivery waits" in (await console.get(f"{page_of(endpoint)}/resume")).text
    await console.post(f"{page_of(endpoint)}/resume", way="all")
    await scene.until_state(delivery, DeliveryState.DELIVERED)


async def test_resuming_can_drain_at_a_rate_or_skip_what_is_too_old(scene: Scene, console: Console) -> None:
    slow, picky = await scene.endpoint(name="slow"), await scene.endpoint(name="picky")
    await held(scene, slow, 2)
    await held(scene, picky, 1)
    scene.leap(60)
    between = to_iso(scene.clock.now())
    scene.leap(60)
    await held(scene, picky, 1)
    await console.get(f"{page_of(slow)}/resume")
    shown = await console.post(f"{page_of(slow)}/resume", way="rate", drain_per_second="0.01")
    assert "is delivered at 0.01 per second" in shown.text
    assert (await stored(scene, slow)).drain_per_second == 0.01
    question = await console.get(f"{page_of(picky)}/resume")
    assert "2 deliveries wait, the oldest since" in question.text
    assert 'name="skip_older_than" type="datetime-local" step="any" value=""' in question.source
    wanted = {"way": "skip", "skip_older_than": between}
    refused = await console.post(f"{page_of(picky)}/resume", dict(wanted))
    assert refused.asks_why
    assert (await stored(scene, picky)).state is EndpointState.PAUSED
    wanted["reason"] = "out of date"
    asked = await console.post(f"{page_of(picky)}/resume", dict(wanted))
    assert "1 delivery was accepted before then and becomes a dead letter." in asked.text
    assert "Resume without 1" in asked.text
    assert (await stored(scene, picky)).state is EndpointState.PAUSED
    other = await console.post(f"{page_of(picky)}/resume", wanted | {"counted": "2026-01-02T00:00"})
    assert "1 delivery was accepted" in other.text, "what was counted was something else"
    assert (await stored(scene, picky)).state is EndpointState.PAUSED
    early = await console.post(f"{page_of(picky)}/resume", wanted | {"skip_older_than": "2020-01-02T00:00"})
    assert "No deliveries were accepted before then" in early.text
    await console.post(f"{page_of(picky)}/resume", wanted | {"counted": asked.field("counted")})
    assert "out of date" in await audited(scene, "endpoint.skip")
    letters, _ = await scene.doorstep.components.reader.dead_letters(
        DEFAULT_ORG, DeadLetterFilter(endpoint_id=picky.endpoint_id), None, 10
    )
    assert [one.code for one in letters.items] == ["SKIPPED"]


WRONG_WAYS = [
    ({"way": "rate"}, "drain_per_second"),
    ({"way": "rate", "drain_per_second": "0"}, "drain_per_second"),
    ({"way": "skip"}, "skip_older_than"),
    ({"way": "skip", "skip_older_than": "yesterday"}, "skip_older_than"),
    ({"way": "sideways"}, "way"),
    ({"way": "all", "drain_per_second": "5"}, "drain_per_second"),
    ({"way": "rate", "drain_per_second": "5", "skip_older_than": "2026-01-02"}, "skip_older_than"),
]


async def test_resuming_in_no_known_way_says_what_is_missing(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    endpoint = await scene.endpoint()
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "test")
    await console.get(f"{page_of(endpoint)}/resume")
    for fields, words in WRONG_WAYS:
        with subtests.test(fields=fields):
            shown = await console.post(f"{page_of(endpoint)}/resume", dict(fields))
            assert shown.status == 422
            assert words in (shown.said or "")
            assert (await stored(scene, endpoint)).state is EndpointState.PAUSED


async def test_a_test_goes_to_this_endpoint_alone_with_the_payload_as_typed(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint("/tested")
    await scene.endpoint("/another")
    await console.get(f"{page_of(endpoint)}/test")
    shown = await console.post(f"{page_of(endpoint)}/test", event_type="a.b", payload='{\r\n  "n": 1.10\r\n}')
    assert re.fullmatch(r"/console/events/[0-9a-f-]{36}", shown.path)
    await until(lambda: len(scene.receiver.requests) == 1, "the test")
    (request,) = scene.receiver.requests
    assert (request.path, request.body) == ("/tested", b'{\n  "n": 1.10\n}')
    assert str(endpoint.endpoint_id) in await audited(scene, "endpoint.test")


async def test_a_test_that_cannot_be_sent_keeps_what_was_typed(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for fields, name in (({"payload": "{half"}, "payload"), ({"event_type": "not one"}, "event_type")):
        with subtests.test(fields=fields):
            endpoint = await scene.endpoint()
            await console.get(f"{page_of(endpoint)}/test")
            shown = await console.post(f"{page_of(endpoint)}/test", {"event_type": "a.b", "payload": "{}", **fields})
            assert shown.status == 422
            assert name in (shown.said or "")
            assert fields[name] in html.unescape(shown.source)


async def test_a_new_secret_is_shown_once_and_the_old_one_signs_until_it_ends(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    await console.get(f"{page_of(endpoint)}/rotate")
    shown = await console.post(f"{page_of(endpoint)}/rotate", overlap_seconds="3600", signing="v1")
    (secret,) = SECRET.findall(shown.source)
    assert "The old one also signs until" in shown.text
    assert shown.headers["cache-control"] == "no-store"
    rotated = await stored(scene, endpoint)
    assert [one.expires_at is None for one in rotated.secrets] == [True, False]
    assert rotated.secrets[1].expires_at == pytest.approx(scene.clock.now() + 3_600 * SECOND, abs=60 * SECOND)
    page = await console.get(page_of(endpoint))
    assert "signs in addition to the newer one" in page.text
    assert secret not in page.source


async def test_a_public_key_can_be_seen_again(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    await console.get(f"{page_of(endpoint)}/rotate")
    shown = await console.post(f"{page_of(endpoint)}/rotate", overlap_seconds="0", signing="v1a")
    (key,) = SECRET.findall(shown.source)
    assert key.startswith("whpk_")
    assert "The old one no longer signs." in shown.text
    assert key in (await console.get(page_of(endpoint))).source


async def test_deleting_tells_how_many_become_dead_letters_and_buries_them(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="shop")
    await held(scene, endpoint, 2)
    question = await console.get(f"{page_of(endpoint)}/delete")
    assert "2 waiting deliveries become dead letters." in question.text
    assert (await stored(scene, endpoint)).state is EndpointState.PAUSED
    refused = await console.post(f"{page_of(endpoint)}/delete", back=page_of(endpoint))
    assert refused.asks_why
    assert "Delete shop?" in refused.text
    assert (await stored(scene, endpoint)).state is EndpointState.PAUSED
    shown = await console.post(f"{page_of(endpoint)}/delete", reason="they left us")
    assert (shown.path, shown.said) == (ENDPOINTS, "shop was deleted.")
    assert "they left us" in await audited(scene, "endpoint.delete")
    assert (await stored(scene, endpoint)).state is EndpointState.DELETED
    assert await scene.count(DeliveryState.DEAD) == 2
    page = await console.get(page_of(endpoint))
    assert "Its waiting deliveries became dead letters" in page.text
    assert "/edit" not in page.source
    assert "was deleted" in ((await console.post(f"{page_of(endpoint)}/pause")).said or "")
