"""Incidents: written with the change that they are of, and read in their order by whoever tells of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import bindparam, insert, select

from doorstep.model.incident import Incident
from doorstep.stores.incidents import document_of
from doorstep.stores.sql.cold.script import Script, Step, ask, each
from doorstep.stores.sql.schema import incidents

_decode = msgspec.json.Decoder(Incident).decode

_ADD = insert(incidents)
_ANY = select(incidents.c.id).limit(1)
_FIRST = select(incidents.c.id, incidents.c.document).order_by(incidents.c.id).limit(bindparam("most"))


def incident_step(org: int, incident: Incident | None) -> Step:
    """A part of the verb whose change it is; nothing where that is none."""
    return incident_steps([] if incident is None else [(org, incident)])


def incident_steps(found: Iterable[tuple[int, Incident]]) -> Step:
    """Each with its organization's key."""
    return each(_ADD, [{"org_id": org, "document": document_of(one)} for org, one in found])


def any_incident() -> Script[bool]:
    return bool((yield ask(_ANY)))


def first_incidents(limit: int) -> Script[list[Incident]]:
    rows = yield ask(_FIRST, most=limit)
    return [msgspec.structs.replace(_decode(document), key=key) for key, document in rows]
