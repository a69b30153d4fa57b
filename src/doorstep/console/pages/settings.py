"""Settings of the installation as they are, and what it is: to be read, and changed where it is started."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from doorstep import __version__
from doorstep.config import SettingRow, Settings, setting_rows
from doorstep.console.page import ADMINISTER, Pages
from doorstep.console.visit import Visit
from doorstep.model.org import Org
from doorstep.telemetry.scrubbing import shown_url

PAGES = Pages("/settings")
PLACE = "/console/settings"
_STORES = {"sqlite": "SQLite, a file of this machine", "memory": "memory, which forgets everything at the end"}


class Value(NamedTuple):
    """A setting as it counts now."""

    row: SettingRow
    shown: str
    changed: bool
    """It is not the default."""


@PAGES.get()
async def show(visit: Visit) -> Response:
    """The first tab that the visitor may see."""
    return RedirectResponse(f"{PLACE}/{'keys' if visit.may('administer') else 'target'}", 303)


@PAGES.get("/installation", ADMINISTER, default_org=True)
async def show_settings(visit: Visit) -> Response:
    return visit.page("settings_installation.html", values=list(values_of(visit.doorstep.settings)))


@PAGES.get("/about")
async def show_about(visit: Visit) -> Response:
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


def _facts(visit: Visit, org: Org | None) -> Iterator[tuple[str, str]]:
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
