"""What a line of the audit log is about and speaks of, by name where it has one, and where to look at it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from doorstep.model.action import ActionKind, AuditEntry

_ID_CHARACTERS = 8
_NAMED = re.compile("(?:(event|delivery|bulk operation) )?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""How the results and reasons that we write name a thing."""
_REPLAY = "event.replay"
"""It has the event, and the endpoint that it was sent to again."""
_GONE = frozenset({"event.delete", "entity.delete"})


class Subject(NamedTuple):
    label: str
    whole: str
    """Its id in full."""
    path: str | None = None


def endpoints_in(lines: Iterable[AuditEntry]) -> set[UUID]:
    """Those whose names are to be known."""
    return {UUID(subject) for line in lines for kind, subject in _kinds(line) if kind == "endpoint"}


def subjects_of(line: AuditEntry, names: Mapping[UUID, str]) -> list[Subject]:
    if line.action.startswith("entity."):
        return [_entity(line)]
    return [_subject(kind, subject, names, there=line.action not in _GONE) for kind, subject in _kinds(line)]


def told(text: str) -> list[str | Subject]:
    """A result or a reason bit by bit: its words, and the things that it names by their ids."""
    bits: list[str | Subject] = []
    end = 0
    for found in _NAMED.finditer(text):
        kind, whole = found[1] or "", found[2]
        bits += [text[end : found.start()], Subject(_short(kind, whole), whole, place_of_kind(kind, whole))]
        end = found.end()
    return [bit for bit in (*bits, text[end:]) if bit]


def _kinds(line: AuditEntry) -> Iterator[tuple[str, str]]:
    """Each subject with what kind of thing it is; the acts on deliveries are named without one."""
    kind = "delivery" if line.action in set(ActionKind) else line.action.partition(".")[0]
    for place, subject in enumerate(line.subjects):
        yield "endpoint" if line.action == _REPLAY and place else kind, subject


def _subject(kind: str, subject: str, names: Mapping[UUID, str], *, there: bool) -> Subject:
    path = place_of_kind(kind, subject) if there else None
    if kind == "endpoint" and (name := names.get(UUID(subject))):
        return Subject(name, subject, path)
    return Subject(_short(kind.replace("_", " "), subject), subject, path)


def _entity(line: AuditEntry) -> Subject:
    pipeline, entity_id = line.subjects
    path = place_of_entity(pipeline, entity_id) if line.action not in _GONE else None
    return Subject(f"{pipeline} {entity_id}", f"{pipeline} {entity_id}", path)


def _short(kind: str, whole: str) -> str:
    return f"{kind} {whole[-_ID_CHARACTERS:]}".lstrip()


_SCREENS = {
    "endpoint": "endpoints",
    "bulk": "bulk",
    "bulk operation": "bulk",
    "alert": "alerts",
    "batch": "batches",
    "event": "events",
    "delivery": "deliveries",
}
"""That of each kind of thing that has one."""


def place_of_kind(kind: str, name: str) -> str | None:
    return f"/console/{_SCREENS[kind]}/{quote(name, safe='')}" if kind in _SCREENS else None


def place_of_entity(pipeline: str, entity_id: str) -> str:
    """The id is somebody else's text: it may have slashes in it."""
    return f"/console/pipelines/{quote(pipeline, safe='')}/{quote(entity_id, safe='')}"
