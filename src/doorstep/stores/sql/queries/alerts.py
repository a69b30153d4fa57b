"""Alerts, their rules and silences, and channels with their endpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec
from sqlalchemy import BindParameter, String, bindparam, case, delete, insert, or_, select, text, update

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import Alert, AlertChange, AlertConfig, AlertFilter, AlertWrite, Channel
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from doorstep.stores import notes
from doorstep.stores.incidents import arranged
from doorstep.stores.sql.queries.audit import write_line
from doorstep.stores.sql.queries.endpoints import lock_endpoint, put_endpoint
from doorstep.stores.sql.queries.incidents import incident_step
from doorstep.stores.sql.queries.moves import parts
from doorstep.stores.sql.queries.orgs import org_key
from doorstep.stores.sql.queries.outbox import post
from doorstep.stores.sql.queries.paging import ORG, page_of, stretch, walk_over
from doorstep.stores.sql.queries.rows import IN_ORG
from doorstep.stores.sql.queries.transaction import Step, Transaction, execute
from doorstep.stores.sql.schema import (
    ALERT_MAY_RETURN,
    ALERT_OPEN,
    ALERT_PENDING,
    UID,
    alerts,
    arrangements,
    incidents,
    orgs,
)

_decode_alert = msgspec.json.Decoder(Alert).decode

_I, _A = incidents.c, alerts.c
_KEYS: BindParameter[list[int]] = bindparam("keys", expanding=True)

# -- telling -----------------------------------------------------------------------------------------------

_LOCK_INCIDENTS = select(_I.id).where(_I.id.in_(_KEYS)).order_by(_I.id).with_for_update()
_REMOVE_INCIDENTS = delete(incidents).where(_I.id.in_(_KEYS))


_OWN = (_A.org_id == bindparam("owner"), _A.uid == bindparam("alert"))
_LOCK_ALERT = select(_A.version).where(*_OWN).with_for_update()
_RIVALS = select(_A.uid).where(
    text(ALERT_OPEN), _A.org_id == bindparam("owner"), _A.subject == bindparam("about"), _A.uid != bindparam("alert")
)
_ADD_ALERT = insert(alerts)
_WRITTEN = ("ended_at", "review_at", "version", "document")
_WRITE_ALERT = update(alerts).where(*_OWN).values({name: bindparam(f"new_{name}") for name in _WRITTEN})


def tell(telling: AlertWrite) -> Transaction[bool]:
    """Everything is looked at before anything is written. Two who open alerts of one subject at once collide on it; the
    second is run again, and finds it."""
    org = yield from org_key(telling.org_id)
    if not (yield from _is_still_there(telling.incident_keys)):
        return False
    ending = {change.alert.alert_id for change in telling.changes if not change.alert.is_open}
    for change in telling.changes:
        if not (yield from _may_be_written(org, change, ending)):
            return False
    for change in telling.changes:
        yield _write(org, change)
    for part in parts(telling.incident_keys):
        yield execute(_REMOVE_INCIDENTS, keys=part)
    yield from post(telling.postings)
    if telling.line is not None:
        yield from write_line(org, telling.line)
    return True


def _is_still_there(keys: Sequence[int]) -> Transaction[bool]:
    found = 0
    for part in parts(sorted(keys)):
        found += len((yield execute(_LOCK_INCIDENTS, keys=part)))
    return found == len(keys)


def _may_be_written(org: int, change: AlertChange, ending: Collection[UUID]) -> Transaction[bool]:
    alert = change.alert
    locked = yield execute(_LOCK_ALERT, owner=org, alert=alert.alert_id)
    if (locked[0][0] if locked else 0) != change.expected_version:
        return False
    if not alert.is_open:
        return True
    rivals = yield execute(_RIVALS, owner=org, about=alert.subject, alert=alert.alert_id)
    return all(row[0] in ending for row in rivals)


def _write(org: int, change: AlertChange) -> Step:
    alert = msgspec.structs.replace(change.alert, version=change.expected_version + 1)
    document = msgspec.json.encode(alert).decode()
    written = dict(zip(_WRITTEN, (alert.ended_at, alert.review_at, alert.version, document), strict=True))
    if change.expected_version:
        changed = {f"new_{name}": value for name, value in written.items()}
        return execute(_WRITE_ALERT, owner=org, alert=alert.alert_id, **changed)
    return execute(
        _ADD_ALERT,
        uid=alert.alert_id,
        org_id=org,
        subject=alert.subject,
        rule=alert.rule.value,
        endpoint_uid=alert.endpoint_id,
        **written,
    )


# -- reading -----------------------------------------------------------------------------------------------

_ONE = select(_A.document).join(orgs, orgs.c.id == _A.org_id).where(IN_ORG, _A.uid == bindparam("alert"))
_OF_ORG = select(_A.id, _A.document).where(_A.org_id == ORG)
_OPEN = _OF_ORG.where(text(ALERT_OPEN)).order_by(_A.subject)
_PENDING = _OF_ORG.where(text(ALERT_PENDING)).order_by(_A.review_at)
"""Each in the order of its own index: else SQLite takes the one over all that the organization ever had."""
_ENDED = _OF_ORG.where(text(ALERT_MAY_RETURN), _A.review_at.is_(None), _A.ended_at > bindparam("after"))
_TO_REVIEW = select(orgs.c.uid).where(
    orgs.c.id.in_(select(_A.org_id).where(_A.review_at.is_not(None), _A.review_at <= bindparam("now")))
)
_RULE, _STATE = bindparam("rule", type_=String()), bindparam("state", type_=String())
_ENDPOINT = bindparam("endpoint", type_=UID)
_IS = case((_A.ended_at.is_(None), "open"), else_="ended")
_PAGE = walk_over(
    (_A.org_id == ORG,),
    (_A.id,),
    select(_A.document),
    (
        or_(_RULE.is_(None), _A.rule == _RULE),
        or_(_ENDPOINT.is_(None), _A.endpoint_uid == _ENDPOINT),
        or_(_STATE.is_(None), _IS == _STATE),
    ),
    newest_first=True,
)


def alert(org_id: UUID, alert_id: UUID) -> Transaction[Alert]:
    rows = yield execute(_ONE, org=org_id, alert=alert_id)
    if not rows:
        raise NotFound(notes.no_alert(alert_id))
    return _decode_alert(rows[0][0])


def list_alerts(org_id: UUID, wanted: AlertFilter, cursor: str | None, limit: int) -> Transaction[Page[Alert]]:
    after = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
    state = None if wanted.is_open is None else "open" if wanted.is_open else "ended"
    values = {"org": org_id, "rule": wanted.rule, "endpoint": wanted.endpoint_id, "state": state}
    found = yield from stretch(_PAGE, after, (0,), limit, values, filtered=wanted != AlertFilter())
    return page_of(_PAGE, [found], limit, lambda row: _decode_alert(row[0]))


def live_alerts(org_id: UUID, ended_after: Instant) -> Transaction[list[Alert]]:
    rows = [*sorted((yield execute(_OPEN, org=org_id))), *sorted((yield execute(_PENDING, org=org_id)))]
    rows += sorted((yield execute(_ENDED, org=org_id, after=ended_after)))
    return [_decode_alert(document) for _, document in rows]


def orgs_to_review(now: Instant) -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_TO_REVIEW, now=now))]


# -- keeping house -----------------------------------------------------------------------------------------

_OLD_ALERTS = (
    select(_A.id)
    .where(_A.ended_at.is_not(None), _A.ended_at < bindparam("before"), _A.review_at.is_(None))
    .order_by(_A.ended_at, _A.id)
    .limit(bindparam("most"))
)
_OLD_ARRANGEMENTS = (
    select(arrangements.c.id)
    .where(arrangements.c.ends_at.is_not(None), arrangements.c.ends_at < bindparam("before"))
    .order_by(arrangements.c.ends_at, arrangements.c.id)
    .limit(bindparam("most"))
)
_REMOVE_ALERTS = delete(alerts).where(_A.id.in_(_KEYS))
_REMOVE_ARRANGEMENTS = delete(arrangements).where(arrangements.c.id.in_(_KEYS))


def clean_alerts(ended_before: Instant, silences_before: Instant, limit: int) -> Transaction[int]:
    old_alerts = yield execute(_OLD_ALERTS, before=ended_before, most=limit)
    old_silences = yield execute(_OLD_ARRANGEMENTS, before=silences_before, most=limit)
    for rows, remove in ((old_alerts, _REMOVE_ALERTS), (old_silences, _REMOVE_ARRANGEMENTS)):
        for part in parts([row[0] for row in rows]):
            yield execute(remove, keys=part)
    return len(old_alerts) + len(old_silences)


_decode: msgspec.json.Decoder[AlertConfig] = msgspec.json.Decoder(AlertConfig)

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


def put_arrangement(arrangement: AlertConfig, expected_version: int, line: AuditEntry, most: int) -> Transaction[bool]:
    org = yield from org_key(arrangement.org_id)
    named = {"owner": org, "arrangement": arrangement.arrangement_id}
    version = yield from lock_arrangement(org, arrangement.arrangement_id)
    if version != expected_version:
        return False
    written = _columns(msgspec.structs.replace(arrangement, version=expected_version + 1))
    if version:
        yield execute(_WRITE, **named, **{f"new_{name}": value for name, value in written.items()})
    else:
        yield from _check_room(org, most, line.at)
        yield execute(_ADD, uid=arrangement.arrangement_id, org_id=org, **written)
    yield incident_step(org, arranged(arrangement, line.at))
    yield from write_line(org, line)
    return True


def lock_arrangement(org: int, arrangement_id: UUID) -> Transaction[int]:
    """Its version, which nobody else changes from now on; 0 if there is none."""
    locked = yield execute(_LOCK, owner=org, arrangement=arrangement_id)
    return int(locked[0][0]) if locked else 0


def _check_room(org: int, most: int, now: Instant) -> Transaction[None]:
    """What is over makes room. The organization's row keeps two who add at once apart."""
    yield execute(_LOCK_ORG, owner=org)
    if len((yield execute(_SOME, owner=org, most=most))) >= most and not (
        yield execute(_REMOVE_OVER, owner=org, now=now)
    ):
        raise Conflict(notes.too_many_arrangements(most))


def _columns(arrangement: AlertConfig) -> dict[str, object]:
    return {
        "version": arrangement.version,
        "ends_at": arrangement.ends_at,
        "document": msgspec.json.encode(arrangement).decode(),
    }


def remove_arrangement(org_id: UUID, arrangement_id: UUID, line: AuditEntry) -> Transaction[bool]:
    org = yield from org_key(org_id)
    removed = yield execute(_REMOVE, owner=org, arrangement=arrangement_id)
    if not removed:
        return False
    yield incident_step(org, arranged(_decode.decode(removed[0][0]), line.at))
    yield from write_line(org, line)
    return True


def all_arrangements(org_id: UUID) -> Transaction[list[AlertConfig]]:
    return [_decode.decode(row[0]) for row in (yield execute(_ALL, org=org_id))]


def put_channel(channel: Channel, endpoint: Endpoint, line: AuditEntry, most: int) -> Transaction[bool]:
    if (yield from _versions(channel, endpoint)) != (0, 0):
        return False
    both = (yield from put_endpoint(endpoint, 0, None, None)) and (yield from put_arrangement(channel, 0, line, most))
    assert both, "nobody could come between"
    return True


def remove_channel(channel: Channel, endpoint: Endpoint, line: AuditEntry) -> Transaction[bool]:
    endpoint_version, channel_version = yield from _versions(channel, endpoint)
    if endpoint_version != endpoint.version or not channel_version:
        return False
    both = (yield from put_endpoint(endpoint, endpoint.version, None, None)) and (
        yield from remove_arrangement(channel.org_id, channel.channel_id, line)
    )
    assert both, "nobody could come between"
    return True


def _versions(channel: Channel, endpoint: Endpoint) -> Transaction[tuple[int, int]]:
    """Those of the endpoint and of the channel; 0 where there is none."""
    reserved, owner = (yield from org_key(endpoint.org_id)), (yield from org_key(channel.org_id))
    _, version, _ = yield from lock_endpoint(reserved, endpoint.endpoint_id)
    return version, (yield from lock_arrangement(owner, channel.channel_id))
