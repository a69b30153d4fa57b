"""Columns: their titles come from the fields, and every field exists."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.cli import accounts, alerts, bulk, dead_letters, endpoints, events, pipelines, stats
from doorstep.cli.output import Column, columns
from doorstep.schemas.accounts import AuditEntry, Key, Org
from doorstep.schemas.alerts import Alert, AlertRule, Channel, Silence
from doorstep.schemas.batches import Batch, Submission
from doorstep.schemas.bulk import Bulk
from doorstep.schemas.deliveries import Attempt, CauseGroup, DeadLetter, QueuedDelivery, Transition
from doorstep.schemas.endpoints import Endpoint
from doorstep.schemas.events import Event, EventItem, InboxItem
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
        (accounts._AUDIT, AuditEntry),
        (accounts._KEYS, Key),
        (accounts._ORGS, Org),
        (alerts._ALERTS, Alert),
        (alerts._CHANNELS, Channel),
        (alerts._RULES, AlertRule),
        (alerts._SILENCES, Silence),
        (bulk._COLUMNS, Bulk),
        (bulk.QUEUED, QueuedDelivery),
        (dead_letters._DEAD_LETTERS, DeadLetter),
        (dead_letters._GROUPS, CauseGroup),
        (endpoints._COLUMNS, Endpoint),
        (endpoints._HEALTH, EndpointHealth),
        (events._ATTEMPTS, Attempt),
        (events._DETAILS, Event),
        (events._EVENTS, EventItem),
        (events._HISTORY, Transition),
        (events._INBOX, InboxItem),
        (pipelines._BATCHES, Batch),
        (pipelines._ENTITIES, Entity),
        (pipelines._HISTORY, EntityChange),
        (pipelines._PIPELINES, Pipeline),
        (pipelines._SUBMISSIONS, Submission),
        (stats._SLO, EndpointSlo),
        (stats._WORKERS, Worker),
    ],
)
def test_every_column_of_a_table_is_a_field_of_its_rows(shown: tuple[Column, ...], row: type[Any]) -> None:
    assert [column.value for column in shown if isinstance(column.value, str) and not hasattr(row, column.value)] == []
