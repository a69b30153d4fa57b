"""Who can sign in, for how long, and protection of signed-in users against other sites."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace

import httpx2
import msgspec
import pytest

from doorstep.api.application import create_application
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND
from doorstep.console.sessions import IDLE, LASTS, LONGEST, SignInLinks
from doorstep.model.bulk import BulkFilter
from doorstep.model.org import ApiKey, Role
from doorstep.testing import FakeClock
from tests.console.chromium import OPENED
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.builders import NOW, new_id
from tests.support.scene import Scene


async def test_nobody_sees_a_page_without_signing_in(api: Api) -> None:
    stranger = Console(api.url)
    shown = await stranger.get("/console/retry-queue?status=pending")
    assert shown.path == "/console/sign-in?next=/console/retry-queue%3Fstatus%3Dpending"
    assert "Sign in" in shown.text


async def test_a_key_signs_in_and_leads_to_the_page_that_was_wanted(api: Api) -> None:
    visitor = Console(api.url)
    shown = await visitor.post("/console/sign-in", key=api.key, next="/console/retry-queue")
    assert (shown.status, shown.path) == (200, "/console/retry-queue")


ELSEWHERE = ["https://evil.example/", "//evil.example", "/console\\@evil", "/v1/keys", "javascript:alert(1)"]


async def test_signing_in_leads_nowhere_else(api: Api, subtests: pytest.Subtests) -> None:
    for elsewhere in ELSEWHERE:
        with subtests.test(elsewhere=elsewhere):
            shown = await Console(api.url).post("/console/sign-in", key=api.key, next=elsewhere)
            assert shown.path == "/console"


async def test_a_wrong_key_is_refused_and_wrong_keys_are_throttled(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = scene.clock.now()
    monkeypatch.setattr(scene.clock, "now", lambda: now)  # while the clock stands still, no new attempts are granted
    visitor = Console(api.url)
    shown = await visitor.post("/console/sign-in", key="dsk_this-is-not-a-key")
    assert (shown.status, shown.said) == (401, "this key is unknown, has expired or was revoked")
    tries = (visitor.post("/console/sign-in", key=f"dsk_wrong-{n}") for n in range(150))
    assert {shown.status for shown in await asyncio.gather(*tries)} == {401, 429}


async def test_wrong_keys_are_counted_for_the_network_of_an_ipv6_client(scene: Scene) -> None:
    """One client has its whole /64 to choose addresses from."""
    application = create_application(scene.doorstep)
    statuses = set()
    for n in range(150):
        transport = httpx2.ASGITransport(application, client=(f"2001:db8::{n:x}", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://h") as client:
            statuses.add((await client.post("/console/sign-in", data={"key": "dsk_this-is-not-a-key"})).status_code)
    assert statuses == {401, 429}


def test_the_links_of_one_organization_do_not_push_out_those_of_another() -> None:
    links = SignInLinks(FakeClock())
    ours, flooding = (
        ApiKey(key_id=new_id(), org_id=new_id(), name="k", role=Role.ADMIN, prefix="p", digest=digest, created_at=NOW)
        for digest in (b"ours", b"flooding")
    )
    path = links.new(ours)
    newest = [links.new(flooding) for _ in range(5_000)][-1]
    assert links.stands_for(path.rpartition("/")[2]) == ours.digest
    assert links.stands_for(newest.rpartition("/")[2]) == flooding.digest


async def test_a_key_that_may_only_send_does_not_get_in(api: Api, scene: Scene) -> None:
    _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "shop", Role.PUBLISHER, "test")
    shown = await Console(api.url).post("/console/sign-in", key=key)
    assert shown.status == 403
    assert "the role publisher may not do that" in (shown.said or "")


async def test_a_revoked_key_ends_its_sessions(scene: Scene, api: Api) -> None:
    record, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "leaver", Role.OPERATOR, "test")
    leaver = await Console(api.url).sign_in(key)
    await scene.doorstep.components.keys.revoke(DEFAULT_ORG, record.key_id, "test")
    assert (await leaver.get("/console")).path.startswith("/console/sign-in")


async def test_a_session_ends_when_it_is_not_used_and_after_a_week_at_the_latest(
    scene: Scene, console: Console
) -> None:
    scene.leap(IDLE / SECOND - 60)
    assert (await console.get("/console")).path == "/console"
    for _ in range(int(LONGEST / IDLE)):
        scene.leap(IDLE / SECOND - 60)
        await console.get("/console")
    scene.leap(3_600)
    assert (await console.get("/console")).path.startswith("/console/sign-in")


async def test_a_session_that_is_not_used_ends(scene: Scene, console: Console) -> None:
    scene.leap(IDLE / SECOND + 1)
    assert (await console.get("/console")).path.startswith("/console/sign-in")


async def test_signing_out_ends_the_session_of_this_browser(console: Console) -> None:
    await console.post("/console/sign-out")
    assert (await console.get("/console")).path.startswith("/console/sign-in")


async def test_a_made_up_session_is_none(api: Api, subtests: pytest.Subtests) -> None:
    for cookie in ("", "x", "AAAA", "é", "A" * 5_000):
        with subtests.test(cookie=cookie[:9]):
            stranger = Console(api.url)
            stranger.cookies["doorstep_session"] = cookie.encode().decode("latin-1")
            assert (await stranger.get("/console")).path.startswith("/console/sign-in")


async def test_a_session_of_another_installation_is_none(api: Api, console: Console, scene: Scene) -> None:
    from doorstep.console.sessions import Sessions
    from doorstep.encryption import Sealer

    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    forged = Sessions(lambda: SimpleNamespace(sealer=Sealer(bytes(32)), keys=None, clock=scene.clock)).begin(record)
    stranger = Console(api.url)
    stranger.cookies["doorstep_session"] = forged
    assert (await stranger.get("/console")).path.startswith("/console/sign-in")


class _Earlier(msgspec.Struct):
    """The contents of a session from another release."""

    digest: str
    since: int


async def test_a_session_of_another_release_is_none(api: Api, scene: Scene, subtests: pytest.Subtests) -> None:
    for content in (msgspec.msgpack.encode(_Earlier("x", 1)), b"\xc1", b""):
        with subtests.test(content=content):
            sealed = scene.doorstep.components.sealer.seal(content, context="console session")
            visitor = Console(api.url)
            visitor.cookies["doorstep_session"] = base64.urlsafe_b64encode(sealed).decode()
            assert (await visitor.get("/console")).path.startswith("/console/sign-in")


# -- links that sign in once ---------------------------------------------------------------------------------------


async def test_a_link_signs_in_once(api: Api, links: SignInLinks, scene: Scene) -> None:
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link = links.new(record)
    first, second = Console(api.url), Console(api.url)
    assert (await first.raw("GET", link, **OPENED)).headers["location"] == "/console"
    assert "was used or is too old" in (await second.get(link)).text
    assert (await first.get(link)).path == "/console"  # a user who is already signed in is not asked


async def test_a_link_asks_first_where_the_browser_does_not_say_who_led_to_it(
    api: Api, links: SignInLinks, scene: Scene
) -> None:
    """Over plain HTTP, for example, browsers send no `Sec-Fetch-Site` header."""
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link, visitor = links.new(record), Console(api.url)
    assert f"Sign in as {record.name}?" in (await visitor.get(link)).text
    assert visitor.cookies == {}
    assert (await visitor.post(link)).path == "/console"


async def test_looking_at_the_headers_of_a_link_does_not_use_it_up(api: Api, links: SignInLinks, scene: Scene) -> None:
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link, visitor = links.new(record), Console(api.url)
    assert (await visitor.raw("HEAD", link, **OPENED)).status == 200
    assert visitor.cookies == {}
    assert (await visitor.raw("GET", link, **OPENED)).status == 303


# -- messages about completed actions --------------------------------------------------------------------------------


async def test_the_sentence_about_what_was_done_is_for_the_next_page_and_not_for_a_refresh(console: Console) -> None:
    await console.get("/console/settings/target")
    body = f"csrf={console._csrf}&success=98&p95_seconds=30s&oldest_seconds=1h&back=/console/settings/target".encode()
    answer = await console.raw("POST", "/console/settings/target", body, X_Forwarded_Proto="https")
    assert ("Secure" in answer.cookies[0], answer.status) == (True, 303)
    refreshed = await console.raw("GET", "/console/retry-queue", HX_Request="true")
    assert "doorstep_said" in console.cookies
    assert "said good" not in refreshed.body.decode()
    assert (await console.get("/console/retry-queue")).said
    assert "doorstep_said" not in console.cookies


async def test_a_link_ends_after_a_while(api: Api, links: SignInLinks, scene: Scene) -> None:
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link = links.new(record)
    scene.leap(LASTS / SECOND + 1)
    assert (await Console(api.url).get(link)).status == 401


async def test_a_link_asks_whoever_is_signed_in_as_somebody_else(
    api: Api, links: SignInLinks, scene: Scene, viewer: Console
) -> None:
    record, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "Mallory", Role.OPERATOR, "test")
    link = links.new(record)
    asked = await viewer.get(link)
    assert "Sign in as Mallory?" in asked.text
    assert "a viewer" in (await viewer.get("/console")).text
    assert "Mallory" in (await viewer.post(link)).text
    assert "was used or is too old" in (await Console(api.url).get(link)).text


async def test_a_link_on_another_site_asks_first_and_cannot_answer_for_its_reader(
    api: Api, links: SignInLinks, scene: Scene
) -> None:
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link, victim, elsewhere = links.new(record), Console(api.url), {"Sec-Fetch-Site": "cross-site"}
    assert (await victim.raw("GET", link, **elsewhere)).status == 200
    assert (await victim.raw("POST", link, b"", **elsewhere)).status == 401
    assert victim.cookies == {}
    assert (await victim.post(link)).path == "/console"  # our own page sent the request


# -- other sites ---------------------------------------------------------------------------------------------------


async def test_a_form_without_the_token_of_the_session_does_nothing(console: Console, scene: Scene) -> None:
    body = b"reason=x&all=yes&csrf=guessed"
    answer = await console.raw("POST", "/console/retry-queue/skip", body)
    assert answer.status == 403
    assert (await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items == ()


async def test_a_form_that_another_site_sends_does_nothing(console: Console, subtests: pytest.Subtests) -> None:
    for header in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        with subtests.test(header=header):
            await console.get("/console/retry-queue")
            body = f"all=yes&csrf={console._csrf}".encode()
            answer = await console.raw("POST", "/console/retry-queue/skip", body, **header)
            assert answer.status == 403


async def test_pages_forbid_everything_that_is_not_ours(console: Console) -> None:
    shown = await console.get("/console/retry-queue")
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert shown.headers["cache-control"] == "no-store"
    assert shown.headers["x-content-type-options"] == "nosniff"


async def test_the_cookie_is_for_this_site_and_not_for_scripts(api: Api) -> None:
    answer = await Console(api.url).raw("POST", "/console/sign-in", f"key={api.key}".encode())
    (cookie,) = answer.cookies
    assert {"HttpOnly", "SameSite=lax", "Path=/console"} <= {part.strip() for part in cookie.split(";")}
