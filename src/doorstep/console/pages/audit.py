"""The audit log: who did what, when, to which items and with what result. Ids are shown as names and links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response

from doorstep.console.request import PageRequest, Pages
from doorstep.model.action import ActionKind, AuditEntry

PAGES = Pages("/audit")
_LIMIT = 100


@PAGES.get()
async def show(request: PageRequest) -> Response:
    query, reader = request.query, request.reader
    about, since, until = query.id("about"), query.moment("since"), query.moment("until")
    page = await reader.audit(
        request.org_id,
        query.text("actor"),
        query.text("action"),
        query.text("cursor"),
        _LIMIT,
        () if about is None else (about,),
        since=since,
        before=until,
    )
    names = await reader.endpoint_names(request.org_id, endpoints_in(page.items))
    rows = [(one, subjects_of(one, names), linked(one.result), linked(one.reason)) for one in page.items]
    people = await reader.key_names(request.org_id, (one.actor for one in page.items))
    return request.page("audit.html", rows=rows, next=page.next, people=people, since=since, until=until)


_ID_CHARACTERS = 8
_NAMED = re.compile("(?:(event|delivery|bulk operation) )?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""Matches an item in the results and reasons that Doorstep writes."""
_REPLAY = "event.replay"
"""The subjects of this action are the event and the endpoint to which it was replayed."""
_GONE = frozenset({"event.delete", "entity.delete"})


class Subject(NamedTuple):
    label: str
    full_id: str
    path: str | None = None


def endpoints_in(entries: Iterable[AuditEntry]) -> set[UUID]:
    return {UUID(subject) for entry in entries for kind, subject in _kinds(entry) if kind == "endpoint"}


def subjects_of(entry: AuditEntry, names: Mapping[UUID, str]) -> list[Subject]:
    if entry.action.startswith("entity."):
        return [_entity(entry)]
    return [_subject(kind, subject, names, exists=entry.action not in _GONE) for kind, subject in _kinds(entry)]


def linked(text: str) -> list[str | Subject]:
    """A result or a reason, split into plain text and links for its ids."""
    parts: list[str | Subject] = []
    end = 0
    for found in _NAMED.finditer(text):
        kind, full_id = found[1] or "", found[2]
        parts += [text[end : found.start()], Subject(_short(kind, full_id), full_id, place_of_kind(kind, full_id))]
        end = found.end()
    return [part for part in (*parts, text[end:]) if part]


def _kinds(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    """Each subject with its kind. The name of an action starts with the kind of its subjects, except for actions on
    deliveries."""
    kind = "delivery" if entry.action in set(ActionKind) else entry.action.partition(".")[0]
    for position, subject in enumerate(entry.subjects):
        yield "endpoint" if entry.action == _REPLAY and position else kind, subject


def _subject(kind: str, subject: str, names: Mapping[UUID, str], *, exists: bool) -> Subject:
    path = place_of_kind(kind, subject) if exists else None
    if kind == "endpoint" and (name := names.get(UUID(subject))):
        return Subject(name, subject, path)
    return Subject(_short(kind.replace("_", " "), subject), subject, path)


def _entity(entry: AuditEntry) -> Subject:
    pipeline, entity_id = entry.subjects
    path = place_of_entity(pipeline, entity_id) if entry.action not in _GONE else None
    return Subject(f"{pipeline} {entity_id}", f"{pipeline} {entity_id}", path)


def _short(kind: str, full_id: str) -> str:
    return f"{kind} {full_id[-_ID_CHARACTERS:]}".lstrip()


_SCREENS = {
    "endpoint": "endpoints",
    "bulk": "bulk",
    "bulk operation": "bulk",
    "alert": "alerts",
    "batch": "batches",
    "event": "events",
    "delivery": "deliveries",
}
"""The screen for each kind of item that has a screen."""


def place_of_kind(kind: str, name: str) -> str | None:
    return f"/console/{_SCREENS[kind]}/{quote(name, safe='')}" if kind in _SCREENS else None


def place_of_entity(pipeline: str, entity_id: str) -> str:
    """The path of an entity's page. Programs choose the ids of entities, so an id may contain slashes."""
    return f"/console/pipelines/{quote(pipeline, safe='')}/{quote(entity_id, safe='')}"
