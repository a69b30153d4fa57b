"""Endpoints are created and changed here. A new one's secret is shown once, in the very answer."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.console.choices import endpoint_of, place_of
from doorstep.console.endpoint_form import OWN, changes_of, flawed_input, inputs_by_section, new_form, texts_of
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.retry_words import in_words, span_text
from doorstep.console.shown_once import secret_shown
from doorstep.console.visit import Visit
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.endpoint import Endpoint
from doorstep.path.enrol import EndpointForm, form_of
from doorstep.policy.retry import BUILT_IN

PAGES = Pages("/endpoints")
_EMPTY = EndpointForm(name="")


@PAGES.get("/new", ACT)
async def ask_new(visit: Visit) -> Response:
    return _form(visit, Fields(texts_of(_EMPTY).items()))


@PAGES.post("/new")
async def create(visit: Visit) -> Response:
    try:
        endpoint, verifier = await visit.doorstep.components.endpoints.create(
            new_form(visit.form), visit.org_id, visit.actor
        )
    except (InvalidInput, Conflict) as error:
        return _form(visit, visit.form, error=error)
    return secret_shown(visit, endpoint, verifier)


@PAGES.get("/{endpoint_id}/edit", ACT)
async def ask_edit(visit: Visit) -> Response:
    endpoint = await endpoint_of(visit)
    texts = texts_of(form_of(endpoint, visit.doorstep.components.sealer)) | {"version": str(endpoint.version)}
    return _form(visit, Fields(texts.items()), endpoint)


@PAGES.post("/{endpoint_id}/edit")
async def edit(visit: Visit) -> Response:
    endpoint = await endpoint_of(visit)
    place = place_of(endpoint)
    try:
        version = visit.form.whole("version", 0, 2**62)
        changes = changes_of(visit.form, form_of(endpoint, visit.doorstep.components.sealer))
        if not changes:
            return visit.done("Nothing was changed.", place)
        await visit.doorstep.components.endpoints.update(
            visit.org_id, endpoint.endpoint_id, changes, visit.actor, version or 0
        )
    except (InvalidInput, Conflict) as error:
        return _form(visit, visit.form, endpoint, error)
    return visit.done(f"Changed: {', '.join(name.replace('_', ' ') for name in sorted(changes))}.", place)


def _form(
    visit: Visit, entered: Fields, endpoint: Endpoint | None = None, error: InvalidInput | Conflict | None = None
) -> Response:
    policies = BUILT_IN | {"standard": visit.doorstep.components.tuning.policy}
    return visit.filled(
        "endpoint_form.html",
        entered,
        error,
        endpoint=endpoint,
        sections=inputs_by_section(),
        flawed=flawed_input(error) if isinstance(error, InvalidInput) else "",
        policies=[*((name, f"{name}: {in_words(policy)}") for name, policy in policies.items()), (OWN, "own delays")],
        timeout=span_text(visit.doorstep.settings.timeout_seconds),
    )
