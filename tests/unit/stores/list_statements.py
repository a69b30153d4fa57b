"""Every statement of every list, with the index that it must walk."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.engine import Dialect

from doorstep.model.delivery import DeliveryState
from doorstep.stores.sql.queries import dead_letters, entity_lists, events, lists, retry_queue
from doorstep.stores.sql.queries import dead_letters as deaths
from doorstep.stores.sql.queries import dead_letters as letters
from doorstep.stores.sql.queries import retry_queue as queue
from doorstep.stores.sql.queries.paging import Statement, Walk
from doorstep.stores.sql.queries.transaction import Step, prepare

BY_ID, FAILED, INBOX = "doorstep_events_org_id_uid_key", "doorstep_events_failed", "doorstep_events_inbox"
RETRYING, DEAD = "doorstep_deliveries_retrying", "doorstep_deliveries_dead"
CAUSES, LOST = "doorstep_deliveries_causes", "doorstep_deliveries_lost"
BATCHES = "doorstep_deliveries_batches"


class Listed(NamedTuple):
    name: str
    statement: Statement
    walks: str
    in_order: bool = False
    """Its rows come in the order of the index, without being sorted."""


def _walk(name: str, walk: Walk, index: str) -> list[Listed]:
    return [
        Listed(f"{name}: horizon", walk.horizon, index, in_order=True),
        Listed(f"{name}: matches", walk.matches, index, in_order=True),
    ]


def _about_letters(state: DeliveryState) -> list[Listed]:
    by_time, by_cause, by_endpoint = (
        about[state] for about in (letters._ALL, letters._OF_ONE_CAUSE, letters._OF_ONE_ENDPOINT)
    )
    return [
        *_walk(f"{state} letters", by_time.walk, DEAD),
        *_walk(f"{state} letters of an endpoint", by_endpoint.walk, LOST),
        Listed(f"count {state} letters of an endpoint", by_endpoint.count_all, LOST),
        Listed(f"count wanted {state} letters of an endpoint", by_endpoint.count_wanted, LOST),
        *_walk(f"{state} letters of a cause", by_cause.walk, CAUSES),
        Listed(f"count {state} letters", by_time.count_all, DEAD),
        Listed(f"count wanted {state} letters", by_time.count_wanted, DEAD),
        Listed(f"count {state} letters of a cause", by_cause.count_all, CAUSES),
        Listed(f"count wanted {state} letters of a cause", by_cause.count_wanted, CAUSES),
        Listed(f"{state} causes", dead_letters._CAUSES[state], CAUSES),
        Listed(f"groups of {state} letters", dead_letters._GROUPS[state], CAUSES),
        Listed(f"groups of {state} letters of a type", dead_letters._GROUPS_OF_TYPE[state], CAUSES),
    ]


LISTED = (
    *_walk("events", events._NEWEST, BY_ID),
    *_walk("oldest events", events._OLDEST, BY_ID),
    *_walk("failed events", events._NEWEST_FAILED, FAILED),
    *_walk("oldest failed events", events._OLDEST_FAILED, FAILED),
    *_walk("inbox", events._WAITING, INBOX),
    *_walk("failed inbox", events._FAILED, FAILED),
    Listed("count inbox", events._WAITING_COUNT, INBOX),
    Listed("count failed inbox", events._FAILED_COUNT, FAILED),
    *_walk("retry queue", queue._QUEUE, RETRYING),
    Listed("count retry queue", queue._COUNT, RETRYING),
    Listed("count wanted retry queue", queue._COUNT_WANTED, RETRYING),
    *_about_letters(DeliveryState.DEAD),
    *_about_letters(DeliveryState.ARCHIVED),
    Listed("deaths by hour", deaths._HOURLY, CAUSES),
    *_walk("batches", retry_queue._WALK, BATCHES),
    *_walk("endpoints", lists._ENDPOINTS, "doorstep_endpoints_org"),
    *_walk("audit", lists._AUDIT, "doorstep_audit_org"),
    *_walk("audit about something", lists._ABOUT, "doorstep_audit_subjects_org"),
    *_walk("all entities", entity_lists._WALKS[False, None], "doorstep_entities_all"),
    *_walk("entities", entity_lists._WALKS[False, False], "doorstep_entities_all"),
    *_walk("archived entities", entity_lists._WALKS[False, True], "doorstep_entities_hidden"),
    *_walk("entities of a status", entity_lists._WALKS[True, False], "doorstep_entities_status"),
    *_walk("all entities of a status", entity_lists._WALKS[True, None], "doorstep_entities_status"),
    Listed("count all entities", entity_lists._COUNTS[False, None], "doorstep_entities_all"),
    Listed("count entities", entity_lists._COUNTS[False, False], "doorstep_entities_all"),
    Listed("count archived entities", entity_lists._COUNTS[False, True], "doorstep_entities_hidden"),
    Listed("count entities of a status", entity_lists._COUNTS[True, False], "doorstep_entities_status"),
    Listed("count all entities of a status", entity_lists._COUNTS[True, None], "doorstep_entities_status"),
)


def text_of(statement: Statement, dialect: Dialect) -> str:
    binds = statement.compile(dialect=dialect).binds.values()
    values = {bind.key: [1, 2] if bind.expanding else None for bind in binds}
    return prepare(Step(statement, (values,)), dialect).text
