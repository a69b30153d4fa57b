"""Table columns: titles come from the field names, and every column refers to an existing field."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.cli import administration, endpoints, events, monitoring, queues
from doorstep.cli.output import Column, columns
from doorstep.schemas.accounts import AuditEntry, Key, Org
from doorstep.schemas.alerts import Alert, AlertRule, Channel, Silence
from doorstep.schemas.bulk import Bulk
from doorstep.schemas.deliveries import Attempt, CauseGroup, DeadLetter, QueuedDelivery, Transition
from doorstep.schemas.endpoints import Endpoint
from doorstep.schemas.events import Batch, Event, EventItem, Submission
from doorstep.schemas.inbox import InboxItem, LeasedEvent
from doorstep.schemas.pipelines import Entity, EntityChange, Pipeline
from doorstep.schemas.stats import EndpointHealth, EndpointSlo, Worker


def test_titles_come_from_the_fields_and_spare_columns_come_last() -> None:
    assert columns("event_id retry_count", spare="created_at") == (
        Column("event", "event_id", whole=True),
        Column("retries", "retry_count"),
        Column("created", "created_at", whole=True, spare=True),
    )


def test_a_keyword_gives_a_column_another_title_or_a_function() -> None:
    assert columns("seen_by total", seen_by="closed_at", total=len) == (
        Column("seen by", "closed_at", whole=True),
        Column("total", len),
    )


@pytest.mark.parametrize(
    ("shown", "row"),
    [
        (administration._AUDIT, AuditEntry),
        (administration._KEYS, Key),
        (administration._ORGS, Org),
        (administration._ALERTS, Alert),
        (administration._CHANNELS, Channel),
        (administration._RULES, AlertRule),
        (administration._SILENCES, Silence),
        (queues._BULK, Bulk),
        (queues._QUEUED, QueuedDelivery),
        (queues._DEAD_LETTERS, DeadLetter),
        (queues._GROUPS, CauseGroup),
        (endpoints._COLUMNS, Endpoint),
        (endpoints._HEALTH, EndpointHealth),
        (events._ATTEMPTS, Attempt),
        (events._DETAILS, Event),
        (events._EVENTS, EventItem),
        (events._DELIVERY_HISTORY, Transition),
        (events._INBOX, InboxItem),
        (events._LEASED, LeasedEvent),
        (events._BATCHES, Batch),
        (events._ENTITIES, Entity),
        (events._HISTORY, EntityChange),
        (events._PIPELINES, Pipeline),
        (events._SUBMISSIONS, Submission),
        (monitoring._SLO, EndpointSlo),
        (monitoring._WORKERS, Worker),
    ],
)
def test_every_column_of_a_table_is_a_field_of_its_rows(shown: tuple[Column, ...], row: type[Any]) -> None:
    assert [column.value for column in shown if isinstance(column.value, str) and not hasattr(row, column.value)] == []
