"""The endpoints over HTTP, as a user without scripts sees them: the list, and the page of one endpoint."""

from __future__ import annotations

import html
import re

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.delivery import DeliveryState
from tests.console.endpoint_pages import ENDPOINTS, names_in, open_circuit, page_of, stored
from tests.console.visiting import Console
from tests.support.scene import Scene

# -- the list ------------------------------------------------------------------------------------------------------


async def test_without_endpoints_it_says_what_an_endpoint_is(console: Console, viewer: Console) -> None:
    shown = await console.get(ENDPOINTS)
    assert "No endpoints yet." in shown.text
    assert "New endpoint" in shown.text
    assert "New endpoint" not in (await viewer.get(ENDPOINTS)).text


async def test_the_list_tells_how_each_endpoint_fares(scene: Scene, console: Console) -> None:
    good = await scene.endpoint("/good", name="good-shop")
    for delivery in await scene.send_to(good, 3):
        await scene.until_state(delivery, DeliveryState.DELIVERED)
    await open_circuit(scene)
    shown = await console.get(ENDPOINTS)
    rows = [shown._replace(source=one).text for one in re.findall(r'<tr id="row-.*?</tr>', shown.source, re.DOTALL)]
    host = f"127.0.0.1:{scene.receiver.port}"
    assert re.fullmatch(rf"good-shop {host} active 100% [\d.]+.ms [\d.]+.ms 0 – 0", rows[0]), rows[0]
    assert re.fullmatch(
        rf"dead-erp {host} active circuit open 1 failure in a row – [\d.]+.ms – 1 .*(now|ago) 0", rows[1]
    ), rows[1]
    assert 'aria-label="24 hours: 3 delivered, 0 failed attempts"' in shown.source
    assert 'aria-label="24 hours: 0 delivered, 1 failed attempt"' in shown.source


async def test_filters_are_by_name_state_and_trouble_the_worst_first(scene: Scene, console: Console) -> None:
    await scene.endpoint(name="good-shop")
    paused = await scene.endpoint(name="paused-crm", url="https://crm.example/hook")
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, paused.endpoint_id, "test")
    letter = await scene.endpoint("/letters", name="strict-accounting")
    scene.receiver.says(401)
    for delivery in await scene.send_to(letter):
        await scene.until_state(delivery, DeliveryState.DEAD)
    await open_circuit(scene)
    everyone = ["good-shop", "paused-crm", "strict-accounting", "dead-erp"]
    for query, expected in {
        "": everyone,
        "?state=paused": ["paused-crm"],
        "?state=active&name=S": ["good-shop", "strict-accounting"],
        "?name=crm.example": ["paused-crm"],
        "?trouble=yes": ["dead-erp", "strict-accounting"],
        "?trouble=yes&state=paused": [],
    }.items():
        assert names_in(await console.get(ENDPOINTS + query)) == expected, query
    shown = await console.get(f"{ENDPOINTS}?name=strict")
    assert ("active failing" in shown.text, 'class="number tone-bad">0%' in shown.source) == (True, True)


async def test_a_click_on_a_column_sorts_by_it_and_another_one_turns_the_order(scene: Scene, console: Console) -> None:
    for name, count in (("quiet", 0), ("busy", 3), ("Calm", 1)):
        for delivery in await scene.send_to(await scene.endpoint(f"/{name}", name=name), count):
            await scene.until_state(delivery, DeliveryState.DELIVERED)
    expected = {
        "Attempts": (["busy", "Calm", "quiet"], ["quiet", "Calm", "busy"]),
        "Endpoint": (["busy", "Calm", "quiet"], ["quiet", "Calm", "busy"]),
    }
    for column, orders in expected.items():
        shown = await console.get(ENDPOINTS)
        for names, direction in zip(orders, ("descending", "ascending"), strict=True):
            link = re.search(rf'class="sort" href="([^"]*)">{column}<', shown.source)
            assert link is not None
            shown = await console.get(html.unescape(link[1]))
            assert names_in(shown) == names, column
            turned = {"descending": "ascending", "ascending": "descending"} if column == "Endpoint" else {}
            assert shown.source.count(f'aria-sort="{turned.get(direction, direction)}"') == 1
    assert names_in(await console.get(f"{ENDPOINTS}?sort=response_time&name=s")) == ["busy"]
    assert (await console.get(f"{ENDPOINTS}?sort=colour")).status == 422
    assert "No endpoints for this filter." in (await console.get(f"{ENDPOINTS}?sort=name&name=nobody")).text


async def test_a_list_without_trouble_says_so(scene: Scene, console: Console) -> None:
    await scene.endpoint()
    assert "No endpoint is failing." in (await console.get(f"{ENDPOINTS}?trouble=yes")).text


async def test_many_endpoints_are_on_several_pages_and_a_filter_finds_what_is_far_behind(
    scene: Scene, console: Console
) -> None:
    for number in range(60):
        await scene.endpoint(name=f"shop-{number}")
    shown = await console.get(ENDPOINTS)
    assert names_in(shown) == [f"shop-{number}" for number in range(50)]
    link = re.search(r'href="([^"]*)" rel="next"', shown.source)
    assert link is not None
    assert names_in(await console.get(html.unescape(link[1]))) == [f"shop-{number}" for number in range(50, 60)]
    assert names_in(await console.get(f"{ENDPOINTS}?name=shop-59")) == ["shop-59"]


async def test_a_filter_that_cannot_be_used_is_a_page_that_says_so(console: Console, subtests: pytest.Subtests) -> None:
    for query in ("state=deleted", "state=x", "cursor=x"):
        with subtests.test(query=query):
            shown = await console.get(f"{ENDPOINTS}?{query}")
            assert shown.status == 422
            assert query.partition("=")[0] in shown.text


# -- the page of one endpoint --------------------------------------------------------------------------------------


async def test_the_page_tells_figures_target_circuit_policy_and_settings(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(
        "/all", name="all-of-it", policy="quick", headers={"X-Tenant": "17"}, event_types=["order.*"], rate_per_second=5
    )
    for delivery in await scene.send_to(endpoint, 2):
        await scene.until_state(delivery, DeliveryState.DELIVERED)
    shown = await console.get(page_of(endpoint))
    text = re.sub(r"\s", " ", shown.text)
    for words in (
        "all-of-it active",
        scene.receiver.url("/all"),
        "Delivered 2 in 24h",
        "Success rate 100%",
        "Target over 30 days met",
        "Circuit closed",
        "quick (endpoint) Immediately, then after 5 s, 30 s and 5 min: 4 attempts",
        "Event types order.*",
        "Attempts per second 5",
        "Headers X-Tenant",
        "v1, HMAC-SHA256",
        "No deliveries wait for a retry.",
        "No dead letters.",
    ):
        assert words in text, words
    assert "17" not in re.findall(r"Headers</th><td>(.*?)</td>", shown.source)[0], "values are never shown"
    assert shown.source.count("<figure data-chart") == 4


async def test_every_range_can_be_asked_for(scene: Scene, console: Console, subtests: pytest.Subtests) -> None:
    for range in ("1h", "6h", "24h", "7d", "30d"):
        with subtests.test(range=range):
            endpoint = await scene.endpoint()
            shown = await console.get(f"{page_of(endpoint)}?range={range}")
            assert shown.status == 200
            assert f'aria-current="true">{range}</a>' in shown.source


async def test_an_open_circuit_is_told_with_its_history_and_what_it_holds(scene: Scene, console: Console) -> None:
    endpoint = await open_circuit(scene)
    text = re.sub(r"\s", " ", (await console.get(page_of(endpoint))).text)
    assert "The circuit is open after 1 failure in a row; the next probe is in" in text
    assert "Circuit open When Became Why" in text
    assert "SERVICE_UNAVAILABLE 0 / 3 held" in text


async def test_unknown_endpoints_and_those_of_others_are_not_found(scene: Scene, console: Console) -> None:
    for path in ("00000000-0000-0000-0000-000000000001", "x", "00000000-0000-0000-0000-000000000001/edit"):
        assert (await console.get(f"{ENDPOINTS}/{path}")).status == 404
    endpoint = await scene.endpoint()
    assert (await console.get(f"{page_of(endpoint)}?range=2h")).status == 422


# -- permissions and escaping --------------------------------------------------------------------------------------


async def test_a_viewer_sees_everything_and_can_do_nothing(scene: Scene, viewer: Console) -> None:
    endpoint = await scene.endpoint(name="shop")
    shown = await viewer.get(page_of(endpoint))
    assert "HMAC-SHA256" in shown.text
    assert not re.search(r'href="[^"]*/(edit|pause|resume|test|rotate|replay|delete)"', shown.source)
    for act in ("edit", "pause", "resume", "test", "rotate", "replay", "delete"):
        assert (await viewer.get(f"{page_of(endpoint)}/{act}")).status == 403, act
        assert (await viewer.post(f"{page_of(endpoint)}/{act}")).status == 403, act
    assert (await viewer.get(f"{ENDPOINTS}/new")).status == 403
    assert (await viewer.post(f"{ENDPOINTS}/new", name="x", url=scene.receiver.url())).status == 403
    assert (await stored(scene, endpoint)).version == endpoint.version


async def test_a_form_of_another_session_changes_nothing(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    await console.get(page_of(endpoint))
    for act in ("pause", "rotate", "delete", "edit", "test", "replay", "resume"):
        assert (await console.post(f"{page_of(endpoint)}/{act}", csrf="somebody else's")).status == 403, act
    assert (await stored(scene, endpoint)).version == endpoint.version


HOSTILE = "\"><script>alert(1)</script>'{{7*7}}<img src=x onerror=alert(2)>\u202e&lt;"


async def test_hostile_names_and_reasons_are_text(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(
        name=HOSTILE,
        event_types=["order.*"],
        headers={"X-A": "b"},
        code_map={HOSTILE[:60]: "TIMEOUT"},
        retry_on=["<b>"],
    )
    await scene.doorstep.components.endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "test", HOSTILE)
    acts = ["", *(f"/{act}" for act in ("edit", "pause", "resume", "test", "rotate", "replay", "delete"))]
    for path in (ENDPOINTS, *(page_of(endpoint) + act for act in acts)):
        shown = await console.get(path)
        assert shown.status == 200, path
        assert "<script>alert" not in shown.source, path
        assert "<img" not in shown.source, path
        assert HOSTILE.split("\u202e")[0] in html.unescape(shown.source), path
