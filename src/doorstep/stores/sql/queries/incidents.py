"""Incidents: written with the change that they are of, and read in their order by whoever tells of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import CTE, BigInteger, ColumnElement, ScalarSelect, bindparam, insert, literal, select

from doorstep.model.alert import Incident
from doorstep.stores.incidents import document_of
from doorstep.stores.sql.queries.paging import ORG
from doorstep.stores.sql.queries.transaction import Step, Transaction, execute, execute_each
from doorstep.stores.sql.schema import incidents, orgs

_decode = msgspec.json.Decoder(Incident).decode

_I = incidents.c
_ADD = insert(incidents)
_ANY = select(_I.id).limit(1)
_FIRST = select(_I.id, _I.document).where(_I.org_id == ORG).order_by(_I.id).limit(bindparam("most"))


def _next_org(after: ColumnElement[Any]) -> ScalarSelect[Any]:
    found = incidents.alias("next").c
    return select(found.org_id).where(found.org_id > after).order_by(found.org_id).limit(1).scalar_subquery()


def _hops() -> CTE:
    """From organization to organization over the index: one seek each, however many incidents one of them has."""
    hop = select(_next_org(literal(0, BigInteger)).label("org")).cte("hop", recursive=True)
    return hop.union_all(select(_next_org(hop.c.org)).where(hop.c.org.is_not(None)))


_HOP = _hops()
_ORGS = select(orgs.c.uid).join(_HOP, _HOP.c.org == orgs.c.id).order_by(orgs.c.id)


def incident_step(org: int, incident: Incident | None) -> Step:
    """A part of the verb whose change it is; nothing where that is none."""
    return incident_steps([] if incident is None else [(org, incident)])


def incident_steps(found: Iterable[tuple[int, Incident]]) -> Step:
    """Each with its organization's key."""
    return execute_each(_ADD, [{"org_id": org, "document": document_of(one)} for org, one in found])


def any_incident() -> Transaction[bool]:
    return bool((yield execute(_ANY)))


def incident_orgs() -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_ORGS))]


def first_incidents(org_id: UUID, limit: int) -> Transaction[list[Incident]]:
    rows = yield execute(_FIRST, org=org_id, most=limit)
    return [msgspec.structs.replace(_decode(document), key=key) for key, document in rows]
