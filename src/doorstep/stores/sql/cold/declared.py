"""Which pipelines there are: when a worker last said that it has each of them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, delete, insert, select

from doorstep.clock import Instant
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import marks

_PREFIX = "pipeline:"
_M = marks.c
_FORGET = delete(marks).where(_M.name == bindparam("mark"))
_NOTE = insert(marks)
_NOTED = select(_M.name, _M.value).where(_M.name.like(f"{_PREFIX}%"))


def declare_pipelines(names: Sequence[tuple[UUID, str]], now: Instant) -> Script[None]:
    """Removed and put anew: on PostgreSQL an update of `marks` waits for every accept that is under way."""
    for org_id, pipeline in sorted(names):
        mark = f"{_PREFIX}{org_id}:{pipeline}"
        yield ask(_FORGET, mark=mark)
        yield ask(_NOTE, name=mark, value=now)


def declared_pipelines() -> Script[dict[tuple[UUID, str], Instant]]:
    return {_read(name): value for name, value in (yield ask(_NOTED))}


def _read(mark: str) -> tuple[UUID, str]:
    org_id, _, pipeline = mark.removeprefix(_PREFIX).partition(":")
    return UUID(org_id), pipeline
