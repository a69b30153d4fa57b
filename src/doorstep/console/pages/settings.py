"""Settings: the installation, API keys, organizations and the default target."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from doorstep import __version__
from doorstep.clock import Instant, seconds
from doorstep.config import SettingRow, Settings, setting_rows
from doorstep.console.confirm import key_shown, reason_of
from doorstep.console.fields import Fields, one_of
from doorstep.console.page import ADMINISTER, Pages
from doorstep.console.policy_text import span_from_text, span_text
from doorstep.console.request import PageRequest
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.endpoint import Slo
from doorstep.model.org import Org, Role
from doorstep.stores.revoking import named_key
from doorstep.telemetry.redaction import shown_url

SETTINGS_PAGES = Pages("/settings")
SETTINGS_PATH = "/console/settings"
_STORES = {"sqlite": "SQLite, a file of this machine", "memory": "memory, which forgets everything at the end"}


class Value(NamedTuple):
    """A setting as it counts now."""

    row: SettingRow
    shown: str
    changed: bool
    """It is not the default."""


@SETTINGS_PAGES.get()
async def show_settings_home(visit: PageRequest) -> Response:
    """The first tab that the visitor may see."""
    return RedirectResponse(f"{SETTINGS_PATH}/{'keys' if visit.may('administer') else 'target'}", 303)


@SETTINGS_PAGES.get("/installation", ADMINISTER, default_org=True)
async def show_settings(visit: PageRequest) -> Response:
    return visit.page("settings_installation.html", values=list(values_of(visit.doorstep.settings)))


@SETTINGS_PAGES.get("/about")
async def show_about(visit: PageRequest) -> Response:
    directory = visit.doorstep.components.directory
    await directory.check_org(visit.org_id)
    return visit.page("settings_about.html", facts=list(_facts(visit, directory.org(visit.org_id))))


def values_of(settings: Settings) -> Iterator[Value]:
    """Every setting, in the order of the table; what must not be read is hidden, also inside of URLs."""
    for row in setting_rows():
        value = getattr(settings, row.name)
        shown = "set, and hidden" if hasattr(value, "get_secret_value") else _shown(value)
        yield Value(row, shown, shown != (row.default or _shown(None)))


def _shown(value: object) -> str:
    match value:
        case None | "" | ():
            return "not set"
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(_shown, value))
        case float():
            return f"{value:g}"
    text = str(value)
    return shown_url(text) if "://" in text else text


def _facts(visit: PageRequest, org: Org | None) -> Iterator[tuple[str, str]]:
    """Where it runs is told only to those who look after the whole installation."""
    settings = visit.doorstep.settings
    kind = urlsplit(settings.database_url).scheme
    yield "Version", __version__
    yield "Store", _STORES.get(kind, "PostgreSQL, shared by any number of machines")
    if visit.in_default_org:
        yield "Database", shown_url(settings.database_url)
        yield "This process", visit.doorstep.components.worker_name
        yield "Python", f"{platform.python_version()} on {platform.system()}"
    yield "Organization", f"{org.name} ({org.org_id})" if org else str(visit.org_id)
    yield "Signed in with", f"{visit.visitor.key.name} ({visit.visitor.key.prefix}…), {visit.visitor.key.role}"


KEY_PAGES = Pages("/settings/keys")
KEYS_PATH = "/console/settings/keys"
ROLES = {
    Role.OPERATOR: "operator: sees everything, retries and repairs",
    Role.VIEWER: "viewer: sees everything",
    Role.PUBLISHER: "publisher: sends events and reads their status",
    Role.ADMIN: "admin: also makes and revokes keys",
}
EXPIRIES = {"never": None, "30d": 30 * 86_400, "90d": 90 * 86_400, "365d": 365 * 86_400}
_EXPIRY_NAMES = {"never": "never", "30d": "in 30 days", "90d": "in 90 days", "365d": "in a year"}
_ENDED_MAX = 50
"""Of those that open nothing any more, the newest; the audit log has them all."""


@KEY_PAGES.get(permission=ADMINISTER)
async def show_keys(visit: PageRequest) -> Response:
    """Those that are good first, the newest of each first."""
    keys = (await visit.doorstep.components.keys.keys(visit.org_id))[::-1]
    good = [key for key in keys if key.is_valid(visit.now)]
    ended = [key for key in keys if not key.is_valid(visit.now)]
    return visit.page("settings_keys.html", good=good, ended=ended[:_ENDED_MAX], more=len(ended) - _ENDED_MAX)


@KEY_PAGES.get("/new", ADMINISTER)
async def ask_new_key(visit: PageRequest) -> Response:
    return _key_form(visit, Fields([("role", Role.OPERATOR), ("expiry", "never")]))


@KEY_PAGES.post("/new", ADMINISTER)
async def create_key(visit: PageRequest) -> Response:
    form = visit.form
    try:
        role, expires_at = form.choice("role", Role), _expires_at(visit)
        if role is None:
            raise InvalidInput("role", f"must be one of {', '.join(Role)}")
        name = form.text("name") or ""
        record, key = await visit.doorstep.components.keys.create(visit.org_id, name, role, visit.actor, expires_at)
    except (InvalidInput, Conflict) as error:
        return _key_form(visit, form, error)
    return key_shown(visit, record, key, KEYS_PATH)


@KEY_PAGES.get("/{key_id}/revoke", ADMINISTER)
async def ask_revoke_key(visit: PageRequest) -> Response:
    return await _revoking(visit)


@KEY_PAGES.post("/{key_id}/revoke", ADMINISTER)
async def revoke_key(visit: PageRequest) -> Response:
    try:
        reason = reason_of(visit.form, required=True)
        key = await visit.doorstep.components.keys.revoke(visit.org_id, visit.id("key_id"), visit.actor, reason)
    except InvalidInput as error:
        return await _revoking(visit, error)
    return visit.done(f"{key.name} ({key.prefix}…) opens nothing any more.", KEYS_PATH)


async def _revoking(visit: PageRequest, error: InvalidInput | None = None) -> Response:
    key = named_key(visit.id("key_id"), await visit.doorstep.components.keys.keys(visit.org_id))
    return visit.filled("settings_key_revoke.html", visit.form, error, key=key, place=KEYS_PATH)


def _expires_at(visit: PageRequest) -> Instant | None:
    """The end that was named, else so long from now, else none."""
    named = visit.form.moment("expires_at")
    if named is not None:
        return named
    span = one_of("expiry", visit.form.text("expiry") or "never", EXPIRIES)
    return None if span is None else visit.now + seconds(span)


def _key_form(visit: PageRequest, entered: Fields, error: InvalidInput | Conflict | None = None) -> Response:
    return visit.filled("settings_key_new.html", entered, error, roles=ROLES, expiries=_EXPIRY_NAMES, place=KEYS_PATH)


ORG_PAGES = Pages("/settings/organizations")
ORGS_PATH = "/console/settings/organizations"
_SHOWN_MAX = 500


@ORG_PAGES.get(permission=ADMINISTER, default_org=True)
async def show_orgs(visit: PageRequest) -> Response:
    """By name, those that have it in theirs if one is looked for."""
    wanted = (visit.query.text("name") or "").casefold()
    found = [org for org in await visit.doorstep.components.keys.orgs() if wanted in org.name.casefold()]
    rows = sorted(found, key=lambda org: (org.name.casefold(), org.org_id))
    return visit.page("settings_orgs.html", rows=rows[:_SHOWN_MAX], more=len(rows) - _SHOWN_MAX)


@ORG_PAGES.get("/new", ADMINISTER, default_org=True)
async def ask_new_org(visit: PageRequest) -> Response:
    return visit.page("settings_org_new.html", entered=Fields(()), error=None, place=ORGS_PATH)


@ORG_PAGES.post("/new", ADMINISTER, default_org=True)
async def create_org(visit: PageRequest) -> Response:
    try:
        org, record, key = await visit.doorstep.components.keys.create_org(
            visit.form.text("name") or "", visit.visitor.key
        )
    except InvalidInput as error:
        return visit.again("settings_org_new.html", error, place=ORGS_PATH)
    return key_shown(visit, record, key, ORGS_PATH, org.name)


TARGET_PAGES = Pages("/settings/target")
TARGET_PATH = "/console/settings/target"


@TARGET_PAGES.get()
async def show_target(visit: PageRequest) -> Response:
    slo = await visit.doorstep.components.reporter.default_slo(visit.org_id)
    return visit.page("settings_target.html", entered=Fields(_texts(slo).items()), error=None)


@TARGET_PAGES.post()
async def change_target(visit: PageRequest) -> Response:
    try:
        slo = _read(visit.form)
        await visit.doorstep.components.reporter.set_default_slo(visit.org_id, slo, visit.actor)
    except InvalidInput as error:
        return visit.again("settings_target.html", error, flawed=error.field.removeprefix("slo."))
    return visit.done("The target counts from now on.", TARGET_PATH)


def _texts(slo: Slo) -> dict[str, str]:
    return {
        "success": f"{100 * slo.success:.10g}",
        "p95_seconds": span_text(slo.p95_seconds),
        "oldest_seconds": span_text(slo.oldest_seconds),
    }


def _read(form: Fields) -> Slo:
    """What is left empty is the built-in one."""
    built_in = Slo()
    success, p95, oldest = form.number("success", 0, 100), form.text("p95_seconds"), form.text("oldest_seconds")
    return Slo(
        success=built_in.success if success is None else round(success / 100, 12),
        p95_seconds=built_in.p95_seconds if p95 is None else span_from_text("p95_seconds", p95),
        oldest_seconds=built_in.oldest_seconds if oldest is None else span_from_text("oldest_seconds", oldest),
    )
