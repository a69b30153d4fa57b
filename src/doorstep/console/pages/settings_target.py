"""The target that counts for endpoints without one of their own."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.fields import Fields
from doorstep.console.page import Pages
from doorstep.console.retry_words import span_from_text, span_text
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.slo import Slo

PAGES = Pages("/settings/target")
PLACE = "/console/settings/target"


@PAGES.get()
async def show(visit: Visit) -> Response:
    slo = await visit.doorstep.components.reporter.default_slo(visit.org_id)
    return visit.page("settings_target.html", entered=Fields(_texts(slo).items()), error=None)


@PAGES.post()
async def change(visit: Visit) -> Response:
    try:
        slo = _read(visit.form)
        await visit.doorstep.components.reporter.set_default_slo(visit.org_id, slo, visit.actor)
    except InvalidInput as error:
        return visit.again("settings_target.html", error, flawed=error.field.removeprefix("slo."))
    return visit.done("The target counts from now on.", PLACE)


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
