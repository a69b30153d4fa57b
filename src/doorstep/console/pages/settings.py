"""Settings: the installation and its workers, API keys, organizations and the default target."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from doorstep import __version__
from doorstep.clock import Instant, seconds
from doorstep.config import SettingRow, Settings, setting_rows
from doorstep.console.confirm import reason_of
from doorstep.console.fields import Fields
from doorstep.console.formatting import span_text
from doorstep.console.request import ADMINISTER, FormError, PageRequest, Pages
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.endpoint import Slo
from doorstep.model.org import Org, Role
from doorstep.telemetry.redaction import shown_url

SETTINGS_PAGES = Pages("/settings")
_STORES = {"sqlite": "SQLite, a file on this machine", "memory": "in memory; everything is lost when the process ends"}


class Value(NamedTuple):
    """A setting and its effective value."""

    row: SettingRow
    shown: str
    changed: bool
    """Whether it differs from the default."""


@SETTINGS_PAGES.get()
async def show_settings_home(request: PageRequest) -> Response:
    """The first tab that the user may see."""
    return RedirectResponse(f"{SETTINGS_PAGES.path}/{'keys' if request.may('administer') else 'target'}", 303)


@SETTINGS_PAGES.get("/installation", ADMINISTER, default_org=True)
async def show_settings(request: PageRequest) -> Response:
    return request.page("settings_installation.html", values=list(values_of(request.doorstep.settings)))


@SETTINGS_PAGES.get("/about")
async def show_about(request: PageRequest) -> Response:
    directory = request.components.directory
    await directory.check_org(request.org_id)
    return request.page("settings_about.html", facts=list(_facts(request, directory.org(request.org_id))))


def values_of(settings: Settings) -> Iterator[Value]:
    """Every setting, in the order of the settings table. Secrets are hidden, including those inside URLs."""
    for row in setting_rows():
        value = getattr(settings, row.name)
        shown = "set, hidden" if hasattr(value, "get_secret_value") else _shown(value)
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


def _facts(request: PageRequest, org: Org | None) -> Iterator[tuple[str, str]]:
    """Only users who administer the whole installation see where it runs."""
    settings, key = request.doorstep.settings, request.session.key
    kind = urlsplit(settings.database_url).scheme
    yield "Version", __version__
    yield "Store", _STORES.get(kind, "PostgreSQL, shared by any number of machines")
    if request.in_default_org:
        yield "Database", shown_url(settings.database_url)
        yield "This process", request.components.worker_name
        yield "Python", f"{platform.python_version()} on {platform.system()}"
    yield "Organization", f"{org.name} ({org.org_id})" if org else str(request.org_id)
    yield "Signed in with", f"{key.name} ({key.prefix}…), {key.role}"


# -- workers -----------------------------------------------------------------------------------------------

WORKER_PAGES = Pages("/workers")
TASKS = {
    "outbox": "forwards the outbox",
    "roller": "aggregates statistics",
    "watch": "evaluates alerts",
    "meter": "exports metrics",
}
"""Descriptions of the tasks that only one process performs at a time. A newer worker may report other tasks."""


@WORKER_PAGES.get(default_org=True)
async def show_workers(request: PageRequest) -> Response:
    """The live workers and the lost ones."""
    workers, now = await request.reader.workers(), request.now
    living = [one for one in workers if not one.is_lost(now)]
    return request.page(
        "workers.html",
        living=living,
        lost=[one for one in workers if one.is_lost(now)],
        places=sum(one.places for one in living),
        in_use=sum(one.places_in_use for one in living),
        versions=sorted({one.version for one in living}),
        tasks=TASKS,
        own_name=request.components.worker_name,
        lease_seconds=request.components.tuning.lease_seconds,
    )


# -- API keys ----------------------------------------------------------------------------------------------

KEY_PAGES = Pages("/settings/keys")
ROLES = {
    Role.OPERATOR: "operator: sees everything, retries and repairs",
    Role.VIEWER: "viewer: sees everything",
    Role.PUBLISHER: "publisher: sends events and reads their status",
    Role.CONSUMER: "consumer: also fetches and acknowledges the inbox",
    Role.ADMIN: "admin: also creates and revokes keys",
}
EXPIRIES = {"never": None, "30d": 30 * 86_400, "90d": 90 * 86_400, "365d": 365 * 86_400}
_EXPIRY_NAMES = {"never": "never", "30d": "in 30 days", "90d": "in 90 days", "365d": "in a year"}
_NEW_KEY = Fields([("role", Role.OPERATOR), ("expiry", "never")])
_ENDED_MAX = 50
"""The maximum number of revoked and expired keys that are listed, newest first. The audit log has all of them."""


@KEY_PAGES.get(permission=ADMINISTER)
async def show_keys(request: PageRequest) -> Response:
    """Valid keys, and revoked or expired ones. Both lists are newest first."""
    keys = (await request.components.keys.keys(request.org_id))[::-1]
    valid = [key for key in keys if key.is_valid(request.now)]
    ended = [key for key in keys if not key.is_valid(request.now)]
    return request.page("settings_keys.html", valid=valid, ended=ended[:_ENDED_MAX], more=len(ended) - _ENDED_MAX)


async def _key_form(request: PageRequest, error: FormError | None) -> Response:
    return request.form_page(
        "settings_key_new.html", error, _NEW_KEY, roles=ROLES, expiries=_EXPIRY_NAMES, place=KEY_PAGES.path
    )


@KEY_PAGES.form("/new", _key_form, ADMINISTER, shows=(InvalidInput, Conflict))
async def create_key(request: PageRequest) -> Response:
    expires_at, role = _expires_at(request), request.form.required_choice("role", Role)
    name = request.form.text("name") or ""
    keys, user_id = request.components.keys, request.form.text("user_id") or None
    record, key = await keys.create(request.org_id, name, role, request.actor, expires_at, user_id)
    return request.page("settings_key.html", record=record, secret=key, place=KEY_PAGES.path, org_name=None)


async def _revoke_form(request: PageRequest, error: FormError | None) -> Response:
    key = await request.components.keys.key(request.org_id, request.id("key_id"))
    return request.form_page("settings_key_revoke.html", error, key=key, place=KEY_PAGES.path)


@KEY_PAGES.form("/{key_id}/revoke", _revoke_form, ADMINISTER)
async def revoke_key(request: PageRequest) -> Response:
    reason = reason_of(request.form, required=True)
    key = await request.components.keys.revoke(request.org_id, request.id("key_id"), request.actor, reason)
    return request.done(f"{key.name} ({key.prefix}…) was revoked.", KEY_PAGES.path)


def _expires_at(request: PageRequest) -> Instant | None:
    """When the new key expires: at the time that the user entered or, without one, after the chosen period. None if the
    key never expires."""
    end = request.form.moment("expires_at")
    if end is not None:
        return end
    span = request.form.option("expiry", EXPIRIES)
    return None if span is None else request.now + seconds(span)


# -- organizations -----------------------------------------------------------------------------------------

ORG_PAGES = Pages("/settings/organizations")
_SHOWN_MAX = 500


@ORG_PAGES.get(permission=ADMINISTER, default_org=True)
async def show_orgs(request: PageRequest) -> Response:
    """Lists organizations by name. If a search text is given, lists only those whose name contains it."""
    text = (request.query.text("name") or "").casefold()
    found = [org for org in await request.components.keys.orgs() if text in org.name.casefold()]
    rows = sorted(found, key=lambda org: (org.name.casefold(), org.org_id))
    return request.page("settings_orgs.html", rows=rows[:_SHOWN_MAX], more=len(rows) - _SHOWN_MAX)


async def _org_form(request: PageRequest, error: FormError | None) -> Response:
    return request.form_page("settings_org_new.html", error, place=ORG_PAGES.path)


@ORG_PAGES.form("/new", _org_form, ADMINISTER, default_org=True)
async def create_org(request: PageRequest) -> Response:
    name = request.form.text("name") or ""
    org, record, key = await request.components.keys.create_org(name, request.session.key)
    return request.page("settings_key.html", record=record, secret=key, place=ORG_PAGES.path, org_name=org.name)


async def _rename_form(request: PageRequest, error: FormError | None) -> Response:
    org = await request.components.orgs.org(request.id("org_id"))
    entered = Fields([("name", org.name)])
    return request.form_page("settings_org_rename.html", error, entered, org=org, place=ORG_PAGES.path)


@ORG_PAGES.form("/{org_id}/rename", _rename_form, ADMINISTER, default_org=True)
async def rename_org(request: PageRequest) -> Response:
    name = request.form.text("name") or ""
    await request.components.orgs.rename(request.id("org_id"), name, request.session.key)
    return request.done("The organization was renamed.", ORG_PAGES.path)


async def _delete_org_form(request: PageRequest, error: FormError | None) -> Response:
    orgs, org_id = request.components.orgs, request.id("org_id")
    org, count = await orgs.org(org_id), await orgs.open_deliveries(org_id)
    return request.form_page("settings_org_delete.html", error, org=org, open=count, place=ORG_PAGES.path)


@ORG_PAGES.form("/{org_id}/delete", _delete_org_form, ADMINISTER, default_org=True, shows=(InvalidInput, Conflict))
async def delete_org(request: PageRequest) -> Response:
    orgs, reason = request.components.orgs, reason_of(request.form, required=True)
    force = request.form.flag("force")
    await orgs.delete(request.id("org_id"), request.session.key, force=force, reason=reason)
    return request.done("The organization was deleted.", ORG_PAGES.path)


# -- the default target ------------------------------------------------------------------------------------

TARGET_PAGES = Pages("/settings/target")


@TARGET_PAGES.get()
async def show_target(request: PageRequest) -> Response:
    slo = await request.components.reporter.default_slo(request.org_id)
    return request.form_page("settings_target.html", None, Fields(_texts(slo).items()))


@TARGET_PAGES.post()
async def change_target(request: PageRequest) -> Response:
    try:
        await request.components.reporter.set_default_slo(request.org_id, _slo(request.form), request.actor)
    except InvalidInput as error:
        return request.form_page("settings_target.html", error, flawed=error.field.removeprefix("slo."))
    return request.done("The target was saved.", TARGET_PAGES.path)


def _texts(slo: Slo) -> dict[str, str]:
    return {
        "success": f"{100 * slo.success:.10g}",
        "p95_seconds": span_text(slo.p95_seconds),
        "oldest_seconds": span_text(slo.oldest_seconds),
    }


def _slo(form: Fields) -> Slo:
    """The target that the user entered. An empty field means the built-in value."""
    given = {
        "success": form.percent("success"),
        "p95_seconds": form.span("p95_seconds"),
        "oldest_seconds": form.span("oldest_seconds"),
    }
    return Slo(**{name: value for name, value in given.items() if value is not None})
