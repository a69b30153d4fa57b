"""Incidents, the alerts that result from them, and the alert settings of organizations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ScalarSelect,
    String,
    bindparam,
    case,
    delete,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)

from doorstep.clock import Instant
from doorstep.errors import Conflict
from doorstep.model.alert import (
    Alert,
    AlertChange,
    AlertConfig,
    AlertConfigs,
    AlertFilter,
    AlertWrite,
    Incident,
    Incidents,
    LiveAlerts,
    OrgsToReview,
    OrgsWithIncidents,
)
from doorstep.model.listing import Page
from doorstep.stores import notes
from doorstep.stores.incidents import config_change_incident, encode_incident
from doorstep.stores.limits import KEY_MAX, read_cursor
from doorstep.stores.sql.queries.accounts import write_entry
from doorstep.stores.sql.queries.outbox import post
from doorstep.stores.sql.queries.paging import ORG, index_scan, page_of, read_slice
from doorstep.stores.sql.queries.rows import IN_ORG, org_key
from doorstep.stores.sql.queries.transaction import (
    KEYS,
    LIMIT,
    Step,
    Transaction,
    execute,
    execute_each,
    execute_in_parts,
    execute_one,
    new_parameters,
    new_values,
)
from doorstep.stores.sql.schema import (
    ALERT_MAY_RETURN,
    ALERT_OPEN,
    ALERT_PENDING,
    UID,
    alert_configs,
    alerts,
    incidents,
    orgs,
)

_decode_incident = msgspec.json.Decoder(Incident).decode

_I = incidents.c
_ADD_INCIDENT = insert(incidents)
_FIRST = select(_I.id, _I.document).where(_I.org_id == ORG).order_by(_I.id).limit(LIMIT)


def _next_org(after: ColumnElement[Any]) -> ScalarSelect[Any]:
    found = incidents.alias("next").c
    return select(found.org_id).where(found.org_id > after).order_by(found.org_id).limit(1).scalar_subquery()


_FIRST_HOP = select(_next_org(literal(0, BigInteger)).label("org")).cte("hop", recursive=True)
_HOP = _FIRST_HOP.union_all(select(_next_org(_FIRST_HOP.c.org)).where(_FIRST_HOP.c.org.is_not(None)))
"""The organizations with incidents. The query jumps from one organization to the next in the index. It needs one seek
per organization, regardless of the number of incidents."""
_ORGS = select(orgs.c.uid).join(_HOP, _HOP.c.org == orgs.c.id).order_by(orgs.c.id)


def incident_step(org: int, incident: Incident | None) -> Step:
    """Add the incident that a change causes, if any, in the same transaction as the change."""
    return incident_steps([] if incident is None else [(org, incident)])


def incident_steps(found: Iterable[tuple[int, Incident]]) -> Step:
    """Add incidents, each given with the key of its organization."""
    return execute_each(_ADD_INCIDENT, [{"org_id": org, "document": encode_incident(one)} for org, one in found])


def orgs_with_incidents(_: UUID | None, __: OrgsWithIncidents) -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_ORGS))]


def incidents_of(org_id: UUID, query: Incidents) -> Transaction[list[Incident]]:
    rows = yield execute(_FIRST, org=org_id, limit=query.limit)
    return [msgspec.structs.replace(_decode_incident(document), key=key) for key, document in rows]


_decode_alert = msgspec.json.Decoder(Alert).decode

_A = alerts.c

# -- writing -----------------------------------------------------------------------------------------------

_LOCK_INCIDENTS = select(_I.id).where(_I.id.in_(KEYS)).order_by(_I.id).with_for_update()
_REMOVE_INCIDENTS = delete(incidents).where(_I.id.in_(KEYS))
_OWN = (_A.org_id == bindparam("owner"), _A.uid == bindparam("alert"))
_LOCK_ALERT = select(_A.version).where(*_OWN).with_for_update()
_OPEN_WITH_SUBJECT = select(_A.uid).where(
    text(ALERT_OPEN), _A.org_id == bindparam("owner"), _A.subject == bindparam("about"), _A.uid != bindparam("alert")
)
_ADD_ALERT = insert(alerts)
_WRITTEN = ("ended_at", "review_at", "version", "document")
_WRITE_ALERT = update(alerts).where(*_OWN).values(new_parameters(_WRITTEN))


def write_alerts(write: AlertWrite) -> Transaction[bool]:
    """Everything is checked before anything is written. If two processes open alerts with the same subject at the same
    time, the unique index rejects the second. Its transaction is retried and then finds the first alert."""
    org = yield from org_key(write.org_id)
    locked = yield from execute_in_parts(_LOCK_INCIDENTS, "keys", sorted(write.incident_keys))
    if len(locked) < len(write.incident_keys):
        return False
    ending = {change.alert.alert_id for change in write.changes if not change.alert.is_open}
    for change in write.changes:
        if not (yield from _can_write(org, change, ending)):
            return False
    for change in write.changes:
        yield _write(org, change)
    yield from execute_in_parts(_REMOVE_INCIDENTS, "keys", write.incident_keys)
    yield from post(write.messages)
    if write.entry is not None:
        yield from write_entry(org, write.entry)
    return True


def _can_write(org: int, change: AlertChange, ending: Collection[UUID]) -> Transaction[bool]:
    alert = change.alert
    locked = yield execute(_LOCK_ALERT, owner=org, alert=alert.alert_id)
    if (locked[0][0] if locked else 0) != change.expected_version:
        return False
    if not alert.is_open:
        return True
    others = yield execute(_OPEN_WITH_SUBJECT, owner=org, about=alert.subject, alert=alert.alert_id)
    return all(row[0] in ending for row in others)


def _write(org: int, change: AlertChange) -> Step:
    alert = msgspec.structs.replace(change.alert, version=change.expected_version + 1)
    document = msgspec.json.encode(alert).decode()
    written = dict(zip(_WRITTEN, (alert.ended_at, alert.review_at, alert.version, document), strict=True))
    if change.expected_version:
        return execute(_WRITE_ALERT, owner=org, alert=alert.alert_id, **new_values(written))
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
"""`_OPEN` and `_PENDING` are sorted in the order of their partial indexes. Otherwise SQLite would use the index of all
alerts of the organization, past and present."""
_ENDED = _OF_ORG.where(text(ALERT_MAY_RETURN), _A.review_at.is_(None), _A.ended_at > bindparam("after"))
_TO_REVIEW = select(orgs.c.uid).where(
    orgs.c.id.in_(select(_A.org_id).where(_A.review_at.is_not(None), _A.review_at <= bindparam("now")))
)
_RULE, _STATE = bindparam("rule", type_=String()), bindparam("state", type_=String())
_ENDPOINT = bindparam("endpoint", type_=UID)
_IS = case((_A.ended_at.is_(None), "open"), else_="ended")
_PAGE = index_scan(
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
    row = yield from execute_one(f"no alert {alert_id}", _ONE, org=org_id, alert=alert_id)
    return _decode_alert(row[0])


def list_alerts(org_id: UUID, query: AlertFilter, cursor: str | None, limit: int) -> Transaction[Page[Alert]]:
    after = read_cursor(cursor, KEY_MAX) or (KEY_MAX,)
    state = None if query.is_open is None else "open" if query.is_open else "ended"
    values = {"org": org_id, "rule": query.rule, "endpoint": query.endpoint_id, "state": state}
    found = yield from read_slice(_PAGE, after, (0,), limit, values, filtered=query != AlertFilter())
    return page_of(_PAGE, [found], limit, lambda row: _decode_alert(row[0]))


def live_alerts(org_id: UUID, query: LiveAlerts) -> Transaction[list[Alert]]:
    rows = [
        *sorted((yield execute(_OPEN, org=org_id))),
        *sorted((yield execute(_PENDING, org=org_id))),
        *sorted((yield execute(_ENDED, org=org_id, after=query.ended_after))),
    ]
    return [_decode_alert(document) for _, document in rows]


def orgs_to_review(_: UUID | None, query: OrgsToReview) -> Transaction[list[UUID]]:
    return [row[0] for row in (yield execute(_TO_REVIEW, now=query.now))]


# -- settings ----------------------------------------------------------------------------------------------

_config_decoder: msgspec.json.Decoder[AlertConfig] = msgspec.json.Decoder(AlertConfig)

_R = alert_configs.c
_NAMED = (_R.org_id == bindparam("owner"), _R.uid == bindparam("config"))
_LOCK = select(_R.version).where(*_NAMED).with_for_update()
_LOCK_ORG = select(orgs.c.id).where(orgs.c.id == bindparam("owner")).with_for_update(key_share=True)
"""Because of `key_share`, this lock does not block transactions that only add rows referring to the organization, such
as accepts."""
_SOME = select(_R.id).where(_R.org_id == bindparam("owner")).limit(LIMIT)
_ADD = insert(alert_configs)
_WRITE = update(alert_configs).where(*_NAMED).values(new_parameters(("version", "ends_at", "document")))
_REMOVE = delete(alert_configs).where(*_NAMED).returning(_R.document)
_REMOVE_ENDED = (
    delete(alert_configs).where(_R.org_id == bindparam("owner"), _R.ends_at <= bindparam("now")).returning(_R.id)
)
_ALL = select(_R.document).where(_R.org_id == ORG).order_by(_R.id)


def put_config(config: AlertConfig, expected_version: int | None, limit: int | None, now: Instant) -> Transaction[bool]:
    org = yield from org_key(config.org_id)
    named = {"owner": org, "config": config.config_id}
    locked = yield execute(_LOCK, **named)
    version = int(locked[0][0]) if locked else 0
    if version != expected_version:
        return False
    new = msgspec.structs.replace(config, version=version + 1)
    written = {"version": new.version, "ends_at": new.ends_at, "document": msgspec.json.encode(new).decode()}
    if version:
        yield execute(_WRITE, **named, **new_values(written))
    else:
        yield from _check_room(org, limit, now)
        yield execute(_ADD, uid=config.config_id, org_id=org, **written)
    yield incident_step(org, config_change_incident(config, now))
    return True


def _check_room(org: int, limit: int | None, now: Instant) -> Transaction[None]:
    """Raise Conflict if the organization has `limit` settings and none of them has expired. Expired settings are
    removed to make room. The lock on the organization's row prevents two writers from adding settings at the same
    time."""
    yield execute(_LOCK_ORG, owner=org)
    if limit is None or len((yield execute(_SOME, owner=org, limit=limit))) < limit:
        return
    if not (yield execute(_REMOVE_ENDED, owner=org, now=now)):
        raise Conflict(notes.too_many_alert_configs(limit))


def delete_config(config: AlertConfig, now: Instant) -> Transaction[bool]:
    org = yield from org_key(config.org_id)
    removed = yield execute(_REMOVE, owner=org, config=config.config_id)
    if not removed:
        return False
    yield incident_step(org, config_change_incident(_config_decoder.decode(removed[0][0]), now))
    return True


def configs_of(org_id: UUID, _: AlertConfigs) -> Transaction[list[AlertConfig]]:
    return [_config_decoder.decode(row[0]) for row in (yield execute(_ALL, org=org_id))]
