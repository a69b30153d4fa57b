"""What organizations arranged about their alerts: rules, channels and silences, as documents."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.act import AuditLine
from doorstep.model.channel import Arrangement
from doorstep.stores import notes
from doorstep.stores.incidents import arranged
from doorstep.stores.sql.cold.audit import write_line
from doorstep.stores.sql.cold.incidents import incident_step
from doorstep.stores.sql.cold.listing.walking import ORG
from doorstep.stores.sql.cold.orgs import org_key
from doorstep.stores.sql.cold.script import Script, ask
from doorstep.stores.sql.schema import arrangements, orgs

_decode: msgspec.json.Decoder[Arrangement] = msgspec.json.Decoder(Arrangement)

_R = arrangements.c
_NAMED = (_R.org_id == bindparam("owner"), _R.uid == bindparam("arrangement"))
_LOCK = select(_R.version).where(*_NAMED).with_for_update()
_LOCK_ORG = select(orgs.c.id).where(orgs.c.id == bindparam("owner")).with_for_update(key_share=True)
"""Whoever only refers to the organization, as every accept does, need not wait."""
_SOME = select(_R.id).where(_R.org_id == bindparam("owner")).limit(bindparam("most"))
_ADD = insert(arrangements)
_WRITE = (
    update(arrangements)
    .where(*_NAMED)
    .values({name: bindparam(f"new_{name}") for name in ("version", "ends_at", "document")})
)
_REMOVE = delete(arrangements).where(*_NAMED).returning(_R.document)
_REMOVE_OVER = (
    delete(arrangements).where(_R.org_id == bindparam("owner"), _R.ends_at <= bindparam("now")).returning(_R.id)
)
_ALL = select(_R.document).where(_R.org_id == ORG).order_by(_R.id)


def put_arrangement(arrangement: Arrangement, expected_version: int, line: AuditLine, most: int) -> Script[bool]:
    org = yield from org_key(arrangement.org_id)
    named = {"owner": org, "arrangement": arrangement.arrangement_id}
    version = yield from lock_arrangement(org, arrangement.arrangement_id)
    if version != expected_version:
        return False
    written = _columns(msgspec.structs.replace(arrangement, version=expected_version + 1))
    if version:
        yield ask(_WRITE, **named, **{f"new_{name}": value for name, value in written.items()})
    else:
        yield from _check_room(org, most, line.at)
        yield ask(_ADD, uid=arrangement.arrangement_id, org_id=org, **written)
    yield incident_step(org, arranged(arrangement, line.at))
    yield from write_line(org, line)
    return True


def lock_arrangement(org: int, arrangement_id: UUID) -> Script[int]:
    """Its version, which nobody else changes from now on; 0 if there is none."""
    locked = yield ask(_LOCK, owner=org, arrangement=arrangement_id)
    return int(locked[0][0]) if locked else 0


def _check_room(org: int, most: int, now: Instant) -> Script[None]:
    """What is over makes room. The organization's row keeps two who add at once apart."""
    yield ask(_LOCK_ORG, owner=org)
    if len((yield ask(_SOME, owner=org, most=most))) >= most and not (yield ask(_REMOVE_OVER, owner=org, now=now)):
        raise Conflict(notes.too_many_arrangements(most))


def _columns(arrangement: Arrangement) -> dict[str, object]:
    return {
        "version": arrangement.version,
        "ends_at": arrangement.ends_at,
        "document": msgspec.json.encode(arrangement).decode(),
    }


def remove_arrangement(org_id: UUID, arrangement_id: UUID, line: AuditLine) -> Script[bool]:
    org = yield from org_key(org_id)
    removed = yield ask(_REMOVE, owner=org, arrangement=arrangement_id)
    if not removed:
        return False
    yield incident_step(org, arranged(_decode.decode(removed[0][0]), line.at))
    yield from write_line(org, line)
    return True


def all_arrangements(org_id: UUID) -> Script[list[Arrangement]]:
    return [_decode.decode(row[0]) for row in (yield ask(_ALL, org=org_id))]
