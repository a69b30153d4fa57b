"""Keys, organizations, the target and information about the installation, over HTTP."""

from __future__ import annotations

import html
import re

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND, to_iso
from doorstep.config import Settings
from doorstep.console.pages.settings import values_of
from doorstep.model.endpoint import Slo
from doorstep.model.org import ApiKey, Role
from tests.console.visiting import Console, Shown
from tests.support.api import Api
from tests.support.scene import Scene

SETTINGS = "/console/settings"
KEYS, ORGS, TARGET = f"{SETTINGS}/keys", f"{SETTINGS}/organizations", f"{SETTINGS}/target"
_KEY = re.compile(r'<code id="secret">(dsk_[^<]+)</code>')


async def keys(scene: Scene) -> dict[str, ApiKey]:
    return {key.name: key for key in await scene.doorstep.components.keys.keys(DEFAULT_ORG)}


def key_in(shown: Shown) -> str:
    found = _KEY.search(shown.source)
    assert found, shown.text
    return html.unescape(found[1])


async def test_everybody_comes_to_the_first_tab_that_is_theirs(console: Console, viewer: Console) -> None:
    shown = await console.get(SETTINGS)
    assert shown.path == KEYS
    for tab in ("Keys", "Organizations", "Target", "Installation", "About"):
        assert f">{tab}</a>" in shown.source
    seen = await viewer.get(SETTINGS)
    assert (seen.path, seen.status) == (TARGET, 200)
    for tab in ("Keys", "Organizations", "Installation"):
        assert f">{tab}</a>" not in seen.source
    for path in (KEYS, f"{KEYS}/new", ORGS, f"{SETTINGS}/installation"):
        assert (await viewer.get(path)).status == 403


async def test_admins_of_other_organizations_see_their_keys_and_nothing_of_the_installation(
    scene: Scene, api: Api
) -> None:
    admin = await scene.doorstep.components.keys.authenticate(api.key)
    assert admin is not None
    _, _, key = await scene.doorstep.components.keys.create_org("other", admin)
    stranger = await Console(api.url).sign_in(key)
    assert admin.prefix not in (await stranger.get(KEYS)).source, "not those of the default one"
    for path in (ORGS, f"{ORGS}/new", f"{SETTINGS}/installation"):
        assert (await stranger.get(path)).status == 403
    assert (await stranger.post(f"{ORGS}/new", name="more")).status == 403
    about = await stranger.get(f"{SETTINGS}/about")
    assert scene.doorstep.components.worker_name not in about.text and "Database" not in about.text
    assert "other" in about.text


# -- keys ----------------------------------------------------------------------------------------------------------


async def test_a_new_key_is_shown_in_the_answer_and_never_again_and_works(
    scene: Scene, api: Api, console: Console
) -> None:
    await console.get(f"{KEYS}/new")
    shown = await console.post(f"{KEYS}/new", name="billing", role="viewer", expiry="30d")
    key = key_in(shown)
    assert shown.headers["cache-control"] == "no-store" and key not in shown.path
    made = (await keys(scene))["billing"]
    assert made.role is Role.VIEWER and made.expires_at is not None
    assert abs(made.expires_at - scene.clock.now() - 30 * DAY) < 60 * SECOND
    listed = await console.get(KEYS)
    assert key not in listed.source and f"billing viewer {made.prefix}" in listed.text
    assert (await Console(api.url).sign_in(key)).cookies


async def test_a_key_may_have_an_end_of_its_own(scene: Scene, api: Api, console: Console) -> None:
    ends_at = scene.clock.now() + 2 * DAY
    await console.get(f"{KEYS}/new")
    await console.post(f"{KEYS}/new", name="guest", role="operator", expires_at=to_iso(ends_at)[:16])
    made = (await keys(scene))["guest"]
    assert made.expires_at is not None and 0 <= ends_at - made.expires_at < 60 * SECOND
    scene.leap(3 * 86_400)  # longer than the idle limit of a session
    assert "expired" in (await (await Console(api.url).sign_in(api.key)).get(KEYS)).text


WRONG_KEYS = [
    ({"name": ""}, "must be 1 to 200 characters"),
    ({"role": "king"}, "must be one of admin, operator, viewer, publisher, consumer"),
    ({"role": ""}, "must be one of admin, operator, viewer, publisher, consumer"),
    ({"expiry": "later"}, "must be one of never, 30d, 90d, 365d"),
    ({"expires_at": "2001-01-01T00:00"}, "must be in the future"),
]


async def test_a_key_that_cannot_be_is_refused_by_name(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for fields, words in WRONG_KEYS:
        with subtests.test(fields=fields):
            before = await keys(scene)
            await console.get(f"{KEYS}/new")
            shown = await console.post(f"{KEYS}/new", {"name": "x", "role": "viewer", "expiry": "never"} | fields)
            assert shown.status == 422 and words in shown.text
            assert await keys(scene) == before


async def test_a_key_is_revoked_after_a_question(scene: Scene, console: Console) -> None:
    record, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "old", Role.OPERATOR, "test")
    question = await console.get(f"{KEYS}/{record.key_id}/revoke")
    assert "Revoke old?" in question.text and "will be signed out" not in question.text
    refused = await console.post(f"{KEYS}/{record.key_id}/revoke")
    assert refused.asks_why and "Revoke old?" in refused.text
    assert (await keys(scene))["old"].revoked_at is None
    shown = await console.post(f"{KEYS}/{record.key_id}/revoke", reason="a leaver")
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "key.revoke", None, 10)).items
    assert line.reason == "a leaver"
    assert shown.said == f"old ({record.prefix}…) was revoked."
    assert (await keys(scene))["old"].revoked_at is not None
    assert "Revoked or expired" in shown.text


async def test_who_revokes_the_own_key_is_warned_and_signed_out(scene: Scene, api: Api) -> None:
    record, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "mine", Role.ADMIN, "test")
    mine = await Console(api.url).sign_in(key)
    assert "You are signed in with it" in (await mine.get(f"{KEYS}/{record.key_id}/revoke")).text
    shown = await mine.post(f"{KEYS}/{record.key_id}/revoke", reason="old")
    assert shown.path.startswith("/console/sign-in")


async def test_the_last_admin_key_stays(scene: Scene, console: Console) -> None:
    admins = [key for key in (await keys(scene)).values() if key.role is Role.ADMIN]
    for key in admins[:-1]:
        await scene.doorstep.components.keys.revoke(DEFAULT_ORG, key.key_id, "test")
    await console.get(f"{KEYS}/new")
    shown = await console.post(f"{KEYS}/{admins[-1].key_id}/revoke", back=KEYS, reason="old")
    assert shown.said and "the last admin key cannot be revoked" in shown.said
    assert (await keys(scene))[admins[-1].name].revoked_at is None


async def test_an_unknown_key_is_not_found(console: Console) -> None:
    await console.get(f"{KEYS}/new")
    unknown = f"{KEYS}/0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b/revoke"
    assert (await console.get(unknown)).status == (await console.post(unknown, reason="old")).status == 404


# -- organizations -------------------------------------------------------------------------------------------------


async def test_a_new_organization_gets_its_first_key_shown_this_once(api: Api, console: Console) -> None:
    await console.get(f"{ORGS}/new")
    shown = await console.post(f"{ORGS}/new", name="Acme <b>")
    key = key_in(shown)
    assert shown.headers["cache-control"] == "no-store" and "Acme <b>" in shown.text
    listed = await console.get(f"{ORGS}?name=acme")
    assert "Acme <b>" in listed.text and "Acme <b>" not in listed.source and key not in listed.source
    assert (await (await Console(api.url).sign_in(key)).get(KEYS)).status == 200
    assert (await console.post(f"{ORGS}/new", name="")).status == 422


# -- the target ----------------------------------------------------------------------------------------------------


async def test_the_default_target_is_changed_and_audited(scene: Scene, console: Console, viewer: Console) -> None:
    assert 'value="99"' in (await console.get(TARGET)).source
    shown = await console.post(TARGET, success="99.9", p95_seconds="30s", oldest_seconds="2h")
    assert shown.said == "The target was saved."
    expected = Slo(success=0.999, p95_seconds=30.0, oldest_seconds=7_200.0)
    assert await scene.doorstep.components.reporter.default_slo(DEFAULT_ORG) == expected
    assert 'value="99.9"' in shown.source and 'value="2h"' in shown.source
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "slo.change", None, 10)).items
    assert "0.999" in line.result
    assert "Save" not in (await viewer.get(TARGET)).text
    assert (await viewer.post(TARGET, success="50")).status == 403


WRONG_TARGETS = [
    {"success": "all"},
    {"success": "10"},
    {"success": "100"},
    {"p95_seconds": "soon"},
    {"oldest_seconds": "0"},
]


async def test_a_target_that_cannot_be_is_refused(scene: Scene, console: Console, subtests: pytest.Subtests) -> None:
    for fields in WRONG_TARGETS:
        with subtests.test(fields=fields):
            await console.get(TARGET)
            shown = await console.post(TARGET, fields)
            assert shown.status == 422
            assert 'aria-invalid="true"' in shown.source, "beside its input"
            assert await scene.doorstep.components.reporter.default_slo(DEFAULT_ORG) == Slo()


# -- the installation ----------------------------------------------------------------------------------------------


async def test_every_setting_is_shown_as_it_counts_now(scene: Scene, console: Console) -> None:
    shown = await console.get(f"{SETTINGS}/installation")
    for name in Settings.model_fields:
        assert f"row-{name}" in shown.source, name
    assert "lease_seconds DOORSTEP_LEASE_SECONDS 10 default 60" in shown.text
    assert "allow_addresses DOORSTEP_ALLOW_ADDRESSES 127.0.0.0/8 not set by default" in shown.text
    secret = scene.doorstep.settings.secret_key
    assert secret is not None and secret.get_secret_value() not in shown.source
    assert "secret_key DOORSTEP_SECRET_KEY set, hidden" in shown.text


def test_passwords_inside_of_urls_are_hidden_too() -> None:
    settings = Settings(
        database_url="postgresql://doorstep:sesame-1@db.example/doorstep?password=sesame-2",
        smtp_url="smtps://user:sesame-3@mail.example",
        admin_key="sesame-4-sesame",
        api_key="sesame-5-sesame",
        url="http://user:sesame-6@host.example",
        public_url="http://user:sesame-7@host.example",
    )
    shown = " ".join(value.shown for value in values_of(settings))
    assert "sesame" not in shown
    assert "db.example/doorstep" in shown, "the rest of it can be read"


async def test_about_tells_version_store_and_where_it_is(scene: Scene, console: Console) -> None:
    shown = await console.get(f"{SETTINGS}/about")
    url = scene.doorstep.settings.database_url
    assert ("SQLite" if url.startswith("sqlite") else "PostgreSQL") in shown.text
    assert scene.doorstep.components.worker_name in shown.text
    for link in ("/docs", "/openapi.json", "/metrics", "/healthz", "/readyz"):
        assert f'href="{link}"' in shown.source


async def test_an_organization_is_renamed_and_deleted_after_a_question(scene: Scene, console: Console) -> None:
    admin = (await keys(scene))["test"]
    org, _, key = await scene.doorstep.components.keys.create_org("other", admin)
    place = f"/console/settings/organizations/{org.org_id}"
    assert 'value="other"' in (await console.get(f"{place}/rename")).source
    assert "better" in (await console.post(f"{place}/rename", name="better")).text
    assert "Delete better?" in (await console.get(f"{place}/delete")).text
    assert (await console.post(f"{place}/delete")).asks_why
    shown = await console.post(f"{place}/delete", reason="a customer left")
    assert shown.said == "The organization was deleted."
    assert await scene.doorstep.components.keys.authenticate(key) is None
    (entry, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "org.delete", None, 10)).items
    assert entry.reason == "a customer left"
    assert f"/{DEFAULT_ORG}/delete" not in shown.source, "the default organization stays"
