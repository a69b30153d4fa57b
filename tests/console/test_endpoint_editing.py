"""Endpoints are created and edited over HTTP: the secret is shown once, invalid input is kept, and edit conflicts are
detected."""

from __future__ import annotations

import base64
import html
import os
import re
from typing import Any

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.engine.directory import unseal_headers
from doorstep.policy.retry import BUILT_IN
from tests.console.endpoint_pages import ENDPOINTS, SECRET, audited, page_of, stored
from tests.console.visiting import Console, Shown
from tests.support.scene import Scene


async def create(console: Console, **fields: Any) -> Shown:
    form = await console.get(f"{ENDPOINTS}/new")
    assert form.status == 200
    given = {"name": "shop", "destination": "http", "event_types": "*"} | {
        key.replace("__", "."): one for key, one in fields.items()
    }
    return await console.post(f"{ENDPOINTS}/new", given)


async def test_a_new_endpoint_is_as_it_was_described_and_its_secret_is_shown_once(
    scene: Scene, console: Console
) -> None:
    shown = await create(
        console,
        url=scene.receiver.url("/new"),
        event_types="order.*\r\nuser.created",
        policy="own",
        policy__delays="5s, 1m",
        policy__jitter="0",
        headers="X-Tenant: 17",
        circuit__failures_max="9",
        slo__success="99.9",
    )
    assert shown.status == 200
    (secret,) = SECRET.findall(shown.source)
    assert secret.startswith("whsec_")
    assert shown.headers["cache-control"] == "no-store"
    assert all(secret not in cookie for cookie in console.cookies.values())
    (endpoint,) = await scene.endpoints()
    assert (endpoint.name, endpoint.event_types) == ("shop", ("order.*", "user.created"))
    assert endpoint.policy is not None
    assert (endpoint.policy.delays, endpoint.policy.jitter) == ((5, 60), 0)
    assert unseal_headers(endpoint, scene.doorstep.components.sealer) == {"X-Tenant": "17"}
    assert endpoint.circuit.failures_max == 9
    assert endpoint.slo is not None
    assert endpoint.slo.success == 0.999
    for path in (page_of(endpoint), f"{page_of(endpoint)}/edit", ENDPOINTS):
        assert secret not in (await console.get(path)).source


WRONG = [
    ({"name": ""}, "name", "must be 1 to 200 characters"),
    ({"url": ""}, "url", "an endpoint needs a url"),
    ({"url": "http://10.0.0.1/x"}, "url", ""),
    ({"url": "javascript:alert(1)"}, "url", ""),
    ({"event_types": "not a type"}, "event_types", "is not a valid event type"),
    ({"policy": "none such"}, "policy", "there is no policy"),
    ({"policy": "own", "policy__delays": "soon"}, "policy.delays", "is not a duration"),
    ({"timeout_seconds": "1d"}, "timeout_seconds", "must be from 0.1"),
    ({"headers": "webhook-id: mine"}, "headers", "is set by Doorstep"),
    ({"circuit__open_seconds": "0s"}, "circuit.open_seconds", "must be from 1 to 86400"),
    ({"circuit__open_seconds": "2d"}, "circuit.open_seconds", "must be from 1 to 86400"),
    ({"slo__success": "10"}, "slo.success", "must be from 0.5"),
    ({"signing": "v9"}, "signing", "must be v1 or v1a"),
]


async def test_wrong_input_names_its_field_and_keeps_what_was_entered(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for fields, name, words in WRONG:
        with subtests.test(fields=fields):
            given = {"url": scene.receiver.url(), "code_map": "E17 = RATE_LIMIT", "name": "kept-name"} | fields
            shown = await create(console, **given)
            assert shown.status == 422
            assert f'<a href="#{name}">A field</a> is invalid: ' in (shown.said or "")
            assert words in (shown.said or "")
            assert re.search(rf'id="{re.escape(name)}" [^>]*aria-invalid="true"', shown.source), f"{name} is marked"
            assert "E17 = RATE_LIMIT" in html.unescape(shown.source)
            assert "name" in fields or 'value="kept-name"' in shown.source
            assert await scene.endpoints() == []


async def test_an_edit_changes_what_was_changed_and_the_audit_says_what(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="before", headers={"X-Key": "s3cret"}, policy="quick", retry_on=["404"])
    form = await console.get(f"{page_of(endpoint)}/edit")
    assert "X-Key: ***" in form.source
    assert "s3cret" not in form.source
    shown = await console.post(
        f"{page_of(endpoint)}/edit", entered_in(form) | {"name": "after", "rate_per_second": "7"}
    )
    assert shown.path == page_of(endpoint)
    assert shown.said == "Changed: name, rate per second."
    changed = await stored(scene, endpoint)
    assert (changed.name, changed.rate_per_second, changed.retry_on) == ("after", 7, ("404",))
    assert unseal_headers(changed, scene.doorstep.components.sealer) == {"X-Key": "s3cret"}
    assert "name, rate_per_second" in await audited(scene, "endpoint.change")


async def test_a_description_is_entered_shown_and_taken_away_again(scene: Scene, console: Console) -> None:
    await create(console, url=scene.receiver.url("/new"), description="Orders of the shop.\r\nAsk <Ada>.")
    (endpoint,) = await scene.endpoints()
    assert endpoint.description == "Orders of the shop.\nAsk <Ada>."
    assert "Ask &lt;Ada&gt;." in (await console.get(page_of(endpoint))).source
    form = await console.get(f"{page_of(endpoint)}/edit")
    assert (await console.post(f"{page_of(endpoint)}/edit", entered_in(form))).said == "Nothing was changed."
    await console.post(f"{page_of(endpoint)}/edit", entered_in(form) | {"description": ""})
    assert (await stored(scene, endpoint)).description == ""


async def test_an_edit_without_a_change_changes_nothing(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(policy="quick", headers={"X-Key": "s3cret"}, code_map={"a": "TIMEOUT"})
    form = await console.get(f"{page_of(endpoint)}/edit")
    shown = await console.post(f"{page_of(endpoint)}/edit", entered_in(form))
    assert shown.said == "Nothing was changed."
    assert (await stored(scene, endpoint)).version == endpoint.version


async def test_two_editors_do_not_overwrite_each_other(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="before")
    form = await console.get(f"{page_of(endpoint)}/edit")
    await scene.doorstep.components.endpoints.update(
        DEFAULT_ORG, endpoint.endpoint_id, {"rate_per_second": 3.0}, "somebody else"
    )
    shown = await console.post(f"{page_of(endpoint)}/edit", entered_in(form) | {"name": "mine"})
    assert shown.status == 409
    assert "read it again and repeat the change" in (shown.said or "")
    assert 'value="mine"' in shown.source, "what was entered is kept"
    assert ((await stored(scene, endpoint)).name, (await stored(scene, endpoint)).rate_per_second) == ("before", 3.0)


def entered_in(form: Shown) -> dict[str, object]:
    """The fields that a browser would submit if the form were left unchanged."""
    inputs = re.findall(r'<input id="([^"]*)" name="\1" type="(?:text|number)" value="([^"]*)"', form.source)
    areas = re.findall(r'<textarea id="([^"]*)"[^>]*>\n(.*?)</textarea>', form.source, re.DOTALL)
    chosen = re.findall(r'<select id="([^"]*)".*?<option value="([^"]*)" selected', form.source, re.DOTALL)
    kind = re.findall(r'name="(destination)" value="([^"]*)" checked', form.source)
    ticked = re.findall(r'<input id="([^"]*)" name="\1" type="checkbox" value="(yes)" checked', form.source)
    given = {
        name: html.unescape(value).replace("\n", "\r\n") for name, value in inputs + areas + chosen + kind + ticked
    }
    return {**given, "version": form.field("version")}


async def test_an_own_secret_is_taken_and_not_shown_again(scene: Scene, console: Console) -> None:
    own = f"whsec_{base64.b64encode(os.urandom(32)).decode()}"
    refused = await create(console, url=scene.receiver.url(), secret="my own secret")
    assert "must begin with whsec_" in refused.text and "my own secret" not in refused.source
    shown = await create(console, url=scene.receiver.url(), secret=own)
    assert "the secret that you entered" in shown.text and own not in shown.source
    (endpoint,) = await scene.doorstep.endpoints()
    await console.get(f"{page_of(endpoint)}/rotate")
    wrong = await console.post(f"{page_of(endpoint)}/rotate", overlap_seconds="0", signing="v1", secret="whsec_short")
    assert "must be base64" in wrong.text and "whsec_short" not in wrong.source
    rotated = await console.post(f"{page_of(endpoint)}/rotate", overlap_seconds="0", signing="v1", secret=own)
    assert "the secret that you entered" in rotated.text and own not in rotated.source


async def test_a_policy_that_is_unknown_is_answered_with_those_that_are(scene: Scene, console: Console) -> None:
    refused = await create(console, url=scene.receiver.url(), policy_by_event_type="order.* = eager")
    assert all(name in refused.text for name in BUILT_IN)
