"""The queries of the list tests: all combinations of filter values, and functions that read all pages of an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hypothesis import strategies as st

from doorstep.clock import DAY, SECOND
from doorstep.model.attempt import Code
from doorstep.model.batch import BatchFilter, BatchStatus
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.event import EventStatus
from doorstep.model.listing import AttemptFilter, DeadLetterFilter, DeliveryFilter, EventFilter, Page, RetryQueueFilter
from tests.support.builders import NOW

T = TypeVar("T")

TYPES = st.sampled_from([None, None, "user.created", "order.paid", "user.*", "*", "user", "", "user.created*"])
INSTANTS = st.sampled_from([None, None, 0, NOW, NOW + 1, NOW + 61 * SECOND, NOW + DAY])
LIMITS = st.sampled_from([1, 2, 3, 50])

EVENT_FILTERS = st.builds(
    EventFilter,
    status=st.sampled_from([None, *EventStatus]),
    event_type=TYPES,
    created_from=INSTANTS,
    created_before=INSTANTS,
    correlation_id=st.sampled_from([None, None, None, "request-1", "request-2"]),
    ordering_key=st.sampled_from([None, None, None, "a", "b"]),
    idempotency_key=st.sampled_from([None, None, None, None, "k1", "k2"]),
    search_keys=st.sampled_from([(), (), (), (1,), (1, -2), (3,)]),
    user_id=st.sampled_from([None, None, None, "ada", "ben"]),
    oldest_first=st.booleans(),
)
CODES = st.sampled_from([None, None, Code.SERVICE_UNAVAILABLE, Code.NOT_FOUND, "NEVER", ""])
DELIVERIES = st.builds(
    DeliveryFilter,
    state=st.sampled_from([None, *DeliveryState]),
    archived_before=st.sampled_from([0, NOW, NOW + 31 * SECOND, NOW + DAY]),
    event_type=TYPES,
    code=CODES,
    created_from=INSTANTS,
    created_before=INSTANTS,
)
ATTEMPTS = st.builds(
    AttemptFilter,
    succeeded=st.sampled_from([None, True, False]),
    event_type=TYPES,
    code=CODES,
    started_from=INSTANTS,
    started_before=INSTANTS,
)
QUEUES = st.builds(
    RetryQueueFilter, waiting=st.sampled_from([None, True, False]), event_type=TYPES, failed_before=INSTANTS
)
"""Filters without an endpoint; tests that have endpoints add one."""
LETTERS = st.builds(
    DeadLetterFilter,
    archived=st.booleans(),
    archived_before=st.sampled_from([0, NOW, NOW + 31 * SECOND, NOW + DAY]),
    event_type=TYPES,
    died_from=INSTANTS,
    died_before=INSTANTS,
)
BATCHES = st.builds(BatchFilter, status=st.sampled_from([None, *BatchStatus]), event_type=TYPES)
STATES = st.sampled_from([None, *EndpointState])


async def pages_of(verb: Callable[..., Awaitable[Page[T]]], *asked: object, limit: int) -> list[tuple[T, ...]]:
    """The items of each page of a list method, from the first page to the last."""
    pages: list[tuple[T, ...]] = []
    cursor: str | None = None
    while True:
        page = await verb(*asked, cursor, limit)
        assert len(page.items) <= limit
        pages.append(page.items)
        if page.next is None:
            return pages
        assert page.next != cursor, "a page that leads to itself"
        cursor = page.next


async def all_of(verb: Callable[..., Awaitable[Page[T]]], *asked: object, limit: int) -> list[T]:
    """All items of a list method, read page by page."""
    return [item for page in await pages_of(verb, *asked, limit=limit) for item in page]
