"""Organizations: who there is, and new ones. For admins of the default organization."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.fields import Fields
from doorstep.console.page import ADMINISTER, Pages
from doorstep.console.shown_once import key_shown
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput

PAGES = Pages("/settings/organizations")
PLACE = "/console/settings/organizations"
_SHOWN_MAX = 500


@PAGES.get(permission=ADMINISTER, default_org=True)
async def show(visit: Visit) -> Response:
    """By name, those that have it in theirs if one is looked for."""
    wanted = (visit.query.text("name") or "").casefold()
    found = [org for org in await visit.doorstep.components.keys.orgs() if wanted in org.name.casefold()]
    rows = sorted(found, key=lambda org: (org.name.casefold(), org.org_id))
    return visit.page("settings_orgs.html", rows=rows[:_SHOWN_MAX], more=len(rows) - _SHOWN_MAX)


@PAGES.get("/new", ADMINISTER, default_org=True)
async def ask_new(visit: Visit) -> Response:
    return visit.page("settings_org_new.html", entered=Fields(()), error=None, place=PLACE)


@PAGES.post("/new", ADMINISTER, default_org=True)
async def create(visit: Visit) -> Response:
    try:
        org, record, key = await visit.doorstep.components.keys.create_org(
            visit.form.text("name") or "", visit.visitor.key
        )
    except InvalidInput as error:
        return visit.again("settings_org_new.html", error, place=PLACE)
    return key_shown(visit, record, key, PLACE, org.name)
