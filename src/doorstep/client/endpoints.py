"""Endpoints, the receivers of events, and their targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

from doorstep.client.call import Call, Page, delete, get, given, json_of, one, paged, patch, post, put
from doorstep.client.verbs import Group, R_co, each_of, verb
from doorstep.schemas.bulk import Bulk, Preview
from doorstep.schemas.endpoints import (
    ChangedFields,
    Circuit,
    Endpoint,
    EndpointPage,
    NewEndpoint,
    NewEndpointFields,
    RotatedSecret,
    Signing,
    Slo,
)
from doorstep.schemas.events import Receipt
from doorstep.schemas.shape import Id
from doorstep.schemas.stats import EndpointHealth, EndpointHealthPage, EndpointSlo, EndpointSloPage


class Endpoints(Group[R_co]):
    """`client.endpoints`."""

    @verb
    def create(self, **fields: Unpack[NewEndpointFields]) -> Call[NewEndpoint]:
        """Create one, with a `name` and a `url` or a `handler`. The answer alone holds its signing secret."""
        return post(one(NewEndpoint), "/v1/endpoints", body=fields)

    @verb
    def read(self, endpoint_id: Id) -> Call[Endpoint]:
        """One endpoint."""
        return get(one(Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def page(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Call[Page[Endpoint]]:
        """One page of the endpoints."""
        query = {"state": state, "limit": limit, "cursor": cursor}
        return get(paged(EndpointPage), "/v1/endpoints", query=query)

    each = each_of(page)

    @verb
    def health(
        self, *, range: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Call[Page[EndpointHealth]]:
        """One page of the endpoints with how they fared: over 24 hours, or a `range` as `client.stats` takes it."""
        query = {"range": range, "limit": limit, "cursor": cursor}
        return get(paged(EndpointHealthPage), "/v1/stats/endpoints", query=query)

    each_health = each_of(health)

    @verb
    def change(self, endpoint_id: Id, **fields: Unpack[ChangedFields]) -> Call[Endpoint]:
        """Change the fields given, and only those. Conflict if someone else changed it at the same moment."""
        return patch(one(Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id, body=fields)

    @verb
    def delete(self, endpoint_id: Id) -> Call[None]:
        """Delete it. What still waits for it becomes dead letters."""
        return delete("/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def pause(self, endpoint_id: Id, *, reason: str | None = None) -> Call[Endpoint]:
        """Hold its deliveries until it is resumed; none are lost."""
        return post(one(Endpoint), "/v1/endpoints/{endpoint_id}/pause", endpoint_id, body={"reason": reason})

    @verb
    def resume(
        self, endpoint_id: Id, *, drain_per_second: float | None = None, skip_older_than: datetime | None = None
    ) -> Call[Endpoint]:
        """Let its deliveries go again, all at once or so many a second; older ones can be left out."""
        body = {"drain_per_second": drain_per_second, "skip_older_than": skip_older_than}
        return post(one(Endpoint), "/v1/endpoints/{endpoint_id}/resume", endpoint_id, body=body)

    @verb
    def test(self, endpoint_id: Id, *, event_type: str | None = None, payload: Any = None) -> Call[Receipt]:
        """Send it a test event through the ordinary path; it goes to this endpoint only."""
        body = {"event_type": event_type, "payload": json_of(payload)}
        return post(one(Receipt), "/v1/endpoints/{endpoint_id}/test", endpoint_id, body=body)

    @verb
    def rotate_secret(
        self,
        endpoint_id: Id,
        *,
        overlap_seconds: float | None = None,
        signing: Signing | None = None,
    ) -> Call[RotatedSecret]:
        """A new signing secret, if wanted of the other kind. For a day, or `overlap_seconds`, both sign."""
        body = {"overlap_seconds": overlap_seconds, "signing": signing}
        return post(one(RotatedSecret), "/v1/endpoints/{endpoint_id}/rotate-secret", endpoint_id, body=body)

    @verb
    def circuit(self, endpoint_id: Id) -> Call[Circuit]:
        """Whether it is being tried, and what led to it."""
        return get(one(Circuit), "/v1/endpoints/{endpoint_id}/circuit", endpoint_id)

    @verb
    def replay(
        self,
        endpoint_id: Id,
        *,
        created_from: datetime,
        created_before: datetime,
        event_type: str | None = None,
        status: str | None = None,
        rate_per_second: float | None = None,
        reason: str | None = None,
    ) -> Call[Bulk]:
        """Send it the events of a time range once more."""
        body = _range(created_from, created_before, event_type, status) | given(
            {"rate_per_second": rate_per_second, "reason": reason}
        )
        return post(one(Bulk), "/v1/endpoints/{endpoint_id}/replay", endpoint_id, body=body)

    @verb
    def preview_replay(
        self,
        endpoint_id: Id,
        *,
        created_from: datetime,
        created_before: datetime,
        event_type: str | None = None,
        status: str | None = None,
    ) -> Call[Preview]:
        """What a replay would send; nothing is done."""
        body = _range(created_from, created_before, event_type, status) | {"preview": True}
        return post(one(Preview), "/v1/endpoints/{endpoint_id}/replay", endpoint_id, body=body)


def _range(
    created_from: datetime, created_before: datetime, event_type: str | None, status: str | None
) -> dict[str, object]:
    return {
        "created_from": created_from,
        "created_before": created_before,
        "event_type": event_type,
        "status": status,
    }


class Slos(Group[R_co]):
    """`client.slo`."""

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[EndpointSlo]]:
        """One page of the endpoints, each against its target over 30 days."""
        return get(paged(EndpointSloPage), "/v1/slo", query={"limit": limit, "cursor": cursor})

    each = each_of(page)

    @verb
    def default(self) -> Call[Slo]:
        """The target that counts for endpoints without one of their own."""
        return get(one(Slo), "/v1/slo/default")

    @verb
    def set_default(
        self,
        *,
        success: float | None = None,
        p95_seconds: float | None = None,
        oldest_seconds: float | None = None,
    ) -> Call[Slo]:
        """Set that target; what is left out is put to the built-in one."""
        body = {"success": success, "p95_seconds": p95_seconds, "oldest_seconds": oldest_seconds}
        return put(one(Slo), "/v1/slo/default", body=body)
