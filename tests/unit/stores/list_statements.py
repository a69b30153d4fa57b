"""Every statement of every list, with the index that it must scan."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.engine import Dialect

from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql.queries import accounts, dead_letters, deliveries, endpoints, entities, events
from doorstep.stores.sql.queries.paging import IndexScan, Statement
from doorstep.stores.sql.queries.transaction import Step, prepare

BY_ID, FAILED, INBOX = "doorstep_events_org_id_uid_key", "doorstep_events_failed", "doorstep_events_inbox"
RETRYING, DEAD = "doorstep_deliveries_retrying", "doorstep_deliveries_dead"
CAUSES, LOST = "doorstep_deliveries_causes", "doorstep_deliveries_dead_by_endpoint"
BATCHES = "doorstep_deliveries_batches"


class Listed(NamedTuple):
    name: str
    statement: Statement
    walks: str
    in_order: bool = False
    """Whether the rows must come in index order, without a sort."""


def _scan(name: str, scan: IndexScan, index: str) -> list[Listed]:
    return [
        Listed(f"{name}: horizon", scan.horizon, index, in_order=True),
        Listed(f"{name}: matches", scan.matches, index, in_order=True),
    ]


def _about_letters(state: DeliveryState) -> list[Listed]:
    by_time, by_cause, by_endpoint = (
        about[state] for about in (dead_letters._ALL, dead_letters._OF_ONE_CAUSE, dead_letters._OF_ONE_ENDPOINT)
    )
    return [
        *_scan(f"{state} letters", by_time.scan, DEAD),
        *_scan(f"{state} letters of an endpoint", by_endpoint.scan, LOST),
        Listed(f"count {state} letters of an endpoint", by_endpoint.count_all, LOST),
        Listed(f"count matching {state} letters of an endpoint", by_endpoint.count_matching, LOST),
        *_scan(f"{state} letters of a cause", by_cause.scan, CAUSES),
        Listed(f"count {state} letters", by_time.count_all, DEAD),
        Listed(f"count matching {state} letters", by_time.count_matching, DEAD),
        Listed(f"count {state} letters of a cause", by_cause.count_all, CAUSES),
        Listed(f"count matching {state} letters of a cause", by_cause.count_matching, CAUSES),
        Listed(f"{state} causes", dead_letters._CAUSES[state], CAUSES),
        Listed(f"groups of {state} letters", dead_letters._GROUPS[state], CAUSES),
        Listed(f"groups of {state} letters of a type", dead_letters._GROUPS_OF_TYPE[state], CAUSES),
    ]


LISTED = (
    *_scan("events", events._NEWEST, BY_ID),
    *_scan("oldest events", events._OLDEST, BY_ID),
    *_scan("failed events", events._NEWEST_FAILED, FAILED),
    *_scan("oldest failed events", events._OLDEST_FAILED, FAILED),
    *_scan("inbox", events._WAITING, INBOX),
    *_scan("failed inbox", events._FAILED, FAILED),
    Listed("count inbox", events._WAITING_COUNT, INBOX),
    Listed("count failed inbox", events._FAILED_COUNT, FAILED),
    *_scan("retry queue", deliveries._QUEUE, RETRYING),
    Listed("count retry queue", deliveries._COUNT, RETRYING),
    Listed("count matching retry queue", deliveries._COUNT_MATCHING, RETRYING),
    *_about_letters(DeliveryState.DEAD),
    *_about_letters(DeliveryState.ARCHIVED),
    Listed("dead letters by hour", dead_letters._HOURLY, CAUSES),
    *_scan("batches", deliveries._BATCHES, BATCHES),
    *_scan("endpoints", endpoints._LIST, "doorstep_endpoints_org"),
    *_scan("audit", accounts._NEWEST, "doorstep_audit_org"),
    *_scan("audit about something", accounts._ABOUT, "doorstep_audit_subjects_org"),
    *_scan("all entities", entities._SCANS[False, None], "doorstep_entities_all"),
    *_scan("entities", entities._SCANS[False, False], "doorstep_entities_all"),
    *_scan("archived entities", entities._SCANS[False, True], "doorstep_entities_hidden"),
    *_scan("entities of a status", entities._SCANS[True, False], "doorstep_entities_status"),
    *_scan("all entities of a status", entities._SCANS[True, None], "doorstep_entities_status"),
    Listed("count all entities", entities._COUNTS[False, None], "doorstep_entities_all"),
    Listed("count entities", entities._COUNTS[False, False], "doorstep_entities_all"),
    Listed("count archived entities", entities._COUNTS[False, True], "doorstep_entities_hidden"),
    Listed("count entities of a status", entities._COUNTS[True, False], "doorstep_entities_status"),
    Listed("count all entities of a status", entities._COUNTS[True, None], "doorstep_entities_status"),
)


def text_of(statement: Statement, dialect: Dialect) -> str:
    binds = statement.compile(dialect=dialect).binds.values()
    values = {bind.key: [1, 2] if bind.expanding else None for bind in binds}
    return prepare(Step(statement, (values,)), dialect).text
