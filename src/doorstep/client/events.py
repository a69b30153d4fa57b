"""Events and the inbox."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from doorstep.client.answers.events import (
    Acknowledged,
    Cancelled,
    Event,
    EventItem,
    EventStatus,
    InboxItem,
    Receipt,
    Retried,
    Status,
)
from doorstep.client.call import Call, Id, Page, delete, get, one, paged, post
from doorstep.client.sending import status_of
from doorstep.client.verbs import Group, R_co, each_of, verb


class Events(Group[R_co]):
    """`client.events`: what was sent, and what became of it."""

    @verb
    def read(self, event_id: Id) -> Call[Event]:
        """An event in full, with its payload and its deliveries."""
        return get(one(Event), "/v1/events/{event_id}", event_id)

    @verb
    def status(self, event_id: Id) -> Call[EventStatus]:
        """Where an event stands, without its payload."""
        return status_of(event_id)

    @verb
    def page(
        self,
        *,
        status: Status | None = None,
        event_type: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[EventItem]]:
        """One page of the events, newest first."""
        query = {
            "status": status,
            "event_type": event_type,
            "created_from": created_from,
            "created_before": created_before,
            "limit": limit,
            "cursor": cursor,
        }
        return get(paged("events", EventItem), "/v1/events", query=query)

    each = each_of(page)

    @verb
    def retry(self, event_id: Id, *, reason: str | None = None) -> Call[Retried]:
        """Try its failed and waiting deliveries now."""
        return post(one(Retried), "/v1/events/{event_id}/retry", event_id, body={"reason": reason})

    @verb
    def cancel(self, event_id: Id, *, reason: str | None = None) -> Call[Cancelled]:
        """Call off its waiting deliveries."""
        return post(one(Cancelled), "/v1/events/{event_id}/cancel", event_id, body={"reason": reason})

    @verb
    def replay(self, event_id: Id, endpoint_id: Id) -> Call[Receipt]:
        """Send it once more, as a new event, to this endpoint only."""
        return post(one(Receipt), "/v1/events/{event_id}/replay", event_id, body={"endpoint_id": str(endpoint_id)})

    @verb
    def delete(self, event_id: Id) -> Call[None]:
        """Erase it, with its payload; what waits is called off. Refused while a delivery is in progress."""
        return delete("/v1/events/{event_id}", event_id)


class Inbox(Group[R_co]):
    """`client.inbox`: events that no endpoint takes, for programs that fetch them instead."""

    @verb
    def page(
        self,
        *,
        status: Literal["received", "failed"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[InboxItem]]:
        """One page, oldest first, with payloads."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return get(paged("events", InboxItem), "/v1/inbox", query=query)

    each = each_of(page)

    @verb
    def acknowledge(self, event_id: Id) -> Call[Acknowledged]:
        """You have it; it is delivered and leaves the inbox."""
        return post(one(Acknowledged), "/v1/events/{event_id}/ack", event_id)
