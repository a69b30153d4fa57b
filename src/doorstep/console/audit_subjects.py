"""What a line of the audit log is about, by name where it has one, and where to look at it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from doorstep.model.act import ActKind, AuditLine

_ID_CHARACTERS = 8
_PLACES = {
    "endpoint": "endpoints",
    "bulk": "bulk",
    "alert": "alerts",
    "batch": "batches",
    "event": "events",
    "delivery": "deliveries",
}
"""The screen of each kind of thing that has one."""
_REPLAY = "event.replay"
"""It has the event, and the endpoint that it was sent to again."""
_GONE = frozenset({"event.delete", "entity.delete"})


class Subject(NamedTuple):
    label: str
    whole: str
    """Its id in full."""
    path: str | None = None


def endpoints_in(lines: Iterable[AuditLine]) -> set[UUID]:
    """Those whose names are to be known."""
    return {UUID(subject) for line in lines for kind, subject in _kinds(line) if kind == "endpoint"}


def subjects_of(line: AuditLine, names: Mapping[UUID, str]) -> list[Subject]:
    if line.action.startswith("entity."):
        return [_entity(line)]
    return [_subject(kind, subject, names, there=line.action not in _GONE) for kind, subject in _kinds(line)]


def _kinds(line: AuditLine) -> Iterator[tuple[str, str]]:
    """Each subject with what kind of thing it is; the acts on deliveries are named without one."""
    kind = "delivery" if line.action in set(ActKind) else line.action.partition(".")[0]
    for place, subject in enumerate(line.subjects):
        yield "endpoint" if line.action == _REPLAY and place else kind, subject


def _subject(kind: str, subject: str, names: Mapping[UUID, str], *, there: bool) -> Subject:
    path = f"/console/{_PLACES[kind]}/{quote(subject)}" if kind in _PLACES and there else None
    if kind == "endpoint" and (name := names.get(UUID(subject))):
        return Subject(name, subject, path)
    return Subject(f"{kind.replace('_', ' ')} {subject[-_ID_CHARACTERS:]}", subject, path)


def _entity(line: AuditLine) -> Subject:
    pipeline, entity_id = line.subjects
    path = f"/console/pipelines/{quote(pipeline)}/{quote(entity_id)}" if line.action not in _GONE else None
    return Subject(f"{pipeline} {entity_id}", f"{pipeline} {entity_id}", path)
