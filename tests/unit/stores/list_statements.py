"""Every statement of every list, with the index that it must scan."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.engine import Dialect

from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.stores.sql.queries import accounts, dead_letters, deliveries, delivery_lists, endpoints, entities, events
from doorstep.stores.sql.queries.paging import IndexScan, Statement
from doorstep.stores.sql.queries.transaction import Step, prepare

BY_ID, FAILED, INBOX = "doorstep_events_org_id_uid_key", "doorstep_events_failed", "doorstep_events_inbox"
RETRYING, DEAD = "doorstep_deliveries_retrying", "doorstep_deliveries_dead"
CAUSES, LOST = "doorstep_deliveries_causes", "doorstep_deliveries_dead_by_endpoint"
BATCHES = "doorstep_deliveries_batches"
_RECEIVED, _FAILED = EventStatus.RECEIVED, EventStatus.FAILED
DELIVERIES, ATTEMPTS = "doorstep_deliveries", "doorstep_attempts"


class Listed(NamedTuple):
    name: str
    statement: Statement
    walks: str
    in_order: bool = False
    """Whether the rows must come in index order, without a sort."""
    beside: tuple[str, ...] = ()
    """Indexes that the statement uses too."""


def _scan(name: str, scan: IndexScan, index: str) -> list[Listed]:
    return [
        Listed(f"{name}: horizon", scan.horizon, index, in_order=True),
        Listed(f"{name}: matches", scan.matches, index, in_order=True),
    ]


def _events(name: str, path: str, index: str) -> list[Listed]:
    others = tuple(one for one in ("status", "event_type", "correlation_id", "ordering_key") if one != path)
    return [
        *_scan(f"{name}, newest first", events.list_scan(events.SUMMARY, path, others, oldest_first=False), index),
        *_scan(f"{name}, oldest first", events.list_scan(events.SUMMARY, path, ("status",), oldest_first=True), index),
        *_scan(f"contents of {name}", events.list_scan(events.SIZED, path, (), oldest_first=False), index),
        Listed(f"count {name}", events.count_statement(path, others), index),
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


def _of_endpoint() -> list[Listed]:
    """The events of a seldom used endpoint, which three indexes of deliveries contain together."""
    indexes = tuple(f"{DELIVERIES}_{name}" for name in events.OWED)
    others = ("status", "event_type")
    statements = {
        "list": events.list_scan(events.SUMMARY, "endpoint_id", others, oldest_first=False).matches,
        "contents": events.list_scan(events.SIZED, "endpoint_id", others, oldest_first=True).matches,
        "count": events.count_statement("endpoint_id", others),
    }
    whole = [
        Listed(f"{name} of an endpoint's events", one, index, beside=indexes)
        for name, one in statements.items()
        for index in indexes
    ]
    parts = zip(events.OWED.items(), indexes, strict=True)
    return [*whole, *(Listed(f"{name} for an endpoint", one, index) for (name, one), index in parts)]


def _of_status(status: str, *names: str) -> list[Listed]:
    """The events with this status, if they are few."""
    indexes = tuple(INBOX if name == "inbox" else f"{DELIVERIES}_{name}" for name in names)
    statements = {
        "list": events.list_scan(events.SUMMARY, status, ("status", "event_type"), oldest_first=False).matches,
        "count": events.count_statement(status, ("status",)),
    }
    whole = [
        Listed(f"{name} of {status} events", one, index, beside=indexes)
        for name, one in statements.items()
        for index in indexes
    ]
    parts = zip(names, indexes, strict=True)
    return [*whole, *(Listed(f"{name} for {status} events", events.UNENDED[name], index) for name, index in parts)]


LISTED = (
    *_events("events", "", BY_ID),
    *_events("failed events", "failed", FAILED),
    *_events("events of a type", "event_type", "doorstep_events_type"),
    *_events("events with a correlation id", "correlation_id", "doorstep_events_correlation"),
    *_events("events with an ordering key", "ordering_key", "doorstep_events_ordering"),
    *_events("events with a value", "search_keys", "doorstep_search_values_found"),
    *_of_endpoint(),
    *_of_status("queued", "fresh", "open_failed"),
    *_of_status("received", "fresh", "inbox"),
    *_events("events of a user", "user_id", "doorstep_events_owned"),
    *_scan("inbox", events.INBOX_SCANS[_RECEIVED, False], INBOX),
    *_scan("failed inbox", events.INBOX_SCANS[_FAILED, False], FAILED),
    *_scan("inbox of a user", events.INBOX_SCANS[_RECEIVED, True], "doorstep_events_owned_inbox"),
    *_scan("failed inbox of a user", events.INBOX_SCANS[_FAILED, True], "doorstep_events_owned_failed"),
    Listed("lease for a user", events._OF_USER, "doorstep_events_owned_leasable", in_order=True),
    Listed("lease", events._ANY_TYPE, "doorstep_events_leasable", in_order=True),
    Listed("lease of a type", events._OF_TYPE, "doorstep_events_leasable_by_type", in_order=True),
    Listed("count inbox", events.INBOX_COUNTS[_RECEIVED, False], INBOX),
    Listed("count failed inbox", events.INBOX_COUNTS[_FAILED, False], FAILED),
    Listed("count inbox of a user", events.INBOX_COUNTS[_RECEIVED, True], "doorstep_events_owned_inbox"),
    Listed("count failed inbox of a user", events.INBOX_COUNTS[_FAILED, True], "doorstep_events_owned_failed"),
    *_scan("retry queue", deliveries._QUEUE, RETRYING),
    Listed("count retry queue", deliveries._COUNT, RETRYING),
    Listed("count matching retry queue", deliveries._COUNT_MATCHING, RETRYING),
    *_about_letters(DeliveryState.DEAD),
    *_about_letters(DeliveryState.ARCHIVED),
    Listed("dead letters by hour", dead_letters._HOURLY, CAUSES),
    *_scan("batches", deliveries._BATCHES, BATCHES),
    *_scan("deliveries", delivery_lists._ALL, f"{DELIVERIES}_org_id_uid_key"),
    *(
        listed
        for index, scans in zip(("fresh", "open_failed"), delivery_lists._OPEN, strict=True)
        for listed in (
            *_scan(f"{index} deliveries", scans[False], f"{DELIVERIES}_{index}"),
            *_scan(f"{index} deliveries of an endpoint", scans[True], f"{DELIVERIES}_{index}"),
        )
    ),
    *_scan("settled deliveries", delivery_lists._SETTLED[False], f"{DELIVERIES}_settled"),
    *_scan("settled of an endpoint", delivery_lists._SETTLED[True], f"{DELIVERIES}_settled_by_endpoint"),
    *_scan("failing deliveries", delivery_lists._FAILING[False], f"{DELIVERIES}_failing"),
    *_scan("failing deliveries of an endpoint", delivery_lists._FAILING[True], f"{DELIVERIES}_failing"),
    Listed("deliveries in progress", delivery_lists._IN_PROGRESS.horizon, f"{DELIVERIES}_in_progress"),
    Listed("events of a type", delivery_lists._OF_TYPE, "doorstep_events_type"),
    Listed("deliveries of a rare type", delivery_lists._OF_EVENTS.matches, f"{DELIVERIES}_event"),
    *_scan("attempts", delivery_lists._ATTEMPTS, f"{ATTEMPTS}_org"),
    *_scan("attempts of an endpoint", delivery_lists._ATTEMPTS_OF_ENDPOINT, f"{ATTEMPTS}_endpoint"),
    *_scan("failed attempts", delivery_lists._FAILED_ATTEMPTS[False, False], f"{ATTEMPTS}_failed"),
    *_scan("failed attempts of an endpoint", delivery_lists._FAILED_ATTEMPTS[True, False], f"{ATTEMPTS}_failed"),
    *_scan("attempts with a code", delivery_lists._FAILED_ATTEMPTS[True, True], f"{ATTEMPTS}_failed"),
    Listed("attempts of a rare type", delivery_lists._ATTEMPTS_OF_EVENTS.matches, f"{DELIVERIES}_event"),
    *_scan("endpoints", endpoints._LIST, "doorstep_endpoints_org"),
    *_scan("audit", accounts.ENTRIES[False, False], "doorstep_audit_org"),
    *_scan("audit of an actor", accounts.ENTRIES[True, False], "doorstep_audit_actor"),
    *_scan("audit of an action", accounts.ENTRIES[False, True], "doorstep_audit_action"),
    *_scan("audit of an actor's action", accounts.ENTRIES[True, True], "doorstep_audit_actor_action"),
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
