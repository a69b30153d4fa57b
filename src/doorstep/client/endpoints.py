"""Endpoints and their service-level targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, Unpack

from doorstep.client.call import Call, Page, Paging, delete, get, json_of, one, paged, patch, post, put
from doorstep.client.queues import BulkOptions
from doorstep.client.verbs import Group, R_co, each_of, verb
from doorstep.schemas import bulk, endpoints, events, stats
from doorstep.schemas.shape import Id


class ReplayRange(TypedDict, total=False):
    """The keyword arguments that select past events."""

    since: datetime
    """Required, as is `until`."""
    until: datetime
    created_from: datetime
    """An older name of `since`."""
    created_before: datetime
    """An older name of `until`."""
    event_type: str | None
    status: str | None


class ReplayOptions(ReplayRange, BulkOptions):
    """The keyword arguments of a replay."""


class Endpoints(Group[R_co]):
    """`client.endpoints`."""

    @verb
    def create(self, **fields: Unpack[endpoints.NewEndpointFields]) -> Call[endpoints.NewEndpoint]:
        """Create an endpoint with a `name` and a `url` or `handler`. Only this response contains its signing secret."""
        return post(one(endpoints.NewEndpoint), "/v1/endpoints", body=fields)

    @verb
    def read(self, endpoint_id: Id) -> Call[endpoints.Endpoint]:
        """One endpoint."""
        return get(one(endpoints.Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def page(self, *, state: str | None = None, **paging: Unpack[Paging]) -> Call[Page[endpoints.Endpoint]]:
        """One page of endpoints."""
        return get(paged(endpoints.EndpointPage), "/v1/endpoints", query={"state": state, **paging})

    each = each_of(page)

    @verb
    def health(
        self, *, range: str | None = None, sort: str | None = None, order: str | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[stats.EndpointHealth]]:
        """One page of endpoints with their health over 24 hours, or over another `range` (see `client.stats`). They can
        be sorted by a figure, such as `response_time`, in the `order` "desc" (the default) or "asc"."""
        query = {"range": range, "sort": sort, "order": order, **paging}
        return get(paged(stats.EndpointHealthPage), "/v1/stats/endpoints", query=query)

    each_health = each_of(health)

    @verb
    def change(self, endpoint_id: Id, **fields: Unpack[endpoints.ChangedFields]) -> Call[endpoints.Endpoint]:
        """Change only the given fields. Raises Conflict if `version` is given and is no longer the newest."""
        return patch(one(endpoints.Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id, body=fields)

    @verb
    def delete(self, endpoint_id: Id) -> Call[None]:
        """Delete an endpoint. Its waiting deliveries become dead letters."""
        return delete("/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def pause(self, endpoint_id: Id, *, reason: str | None = None) -> Call[endpoints.Endpoint]:
        """Hold an endpoint's deliveries until it is resumed. None are lost."""
        return post(one(endpoints.Endpoint), "/v1/endpoints/{endpoint_id}/pause", endpoint_id, body={"reason": reason})

    @verb
    def resume(
        self, endpoint_id: Id, *, drain_per_second: float | None = None, skip_older_than: datetime | None = None
    ) -> Call[endpoints.Endpoint]:
        """Resume deliveries, immediately or at a limited rate. Deliveries of old events can be skipped."""
        body = {"drain_per_second": drain_per_second, "skip_older_than": skip_older_than}
        return post(one(endpoints.Endpoint), "/v1/endpoints/{endpoint_id}/resume", endpoint_id, body=body)

    @verb
    def test(self, endpoint_id: Id, *, event_type: str | None = None, payload: Any = None) -> Call[events.Receipt]:
        """Send a test event to this endpoint only. It is delivered like any other event."""
        body = {"event_type": event_type, "payload": json_of(payload)}
        return post(one(events.Receipt), "/v1/endpoints/{endpoint_id}/test", endpoint_id, body=body)

    @verb
    def rotate_secret(
        self,
        endpoint_id: Id,
        *,
        overlap_seconds: float | None = None,
        signing: endpoints.Signing | None = None,
        secret: str | None = None,
    ) -> Call[endpoints.RotatedSecret]:
        """Create a new signing secret. For `overlap_seconds`, by default a day, requests are signed with both the old
        and the new secret.

        `signing` changes the kind of signature. `secret` is your own new secret, which the response does not repeat.
        """
        body = {"overlap_seconds": overlap_seconds, "signing": signing, "secret": secret}
        return post(one(endpoints.RotatedSecret), "/v1/endpoints/{endpoint_id}/rotate-secret", endpoint_id, body=body)

    @verb
    def circuit(self, endpoint_id: Id) -> Call[endpoints.Circuit]:
        """The state of an endpoint's circuit, and the history of that state."""
        return get(one(endpoints.Circuit), "/v1/endpoints/{endpoint_id}/circuit", endpoint_id)

    @verb
    def replay(self, endpoint_id: Id, **options: Unpack[ReplayOptions]) -> Call[bulk.Bulk]:
        """Send the events of a time range to this endpoint again."""
        return post(one(bulk.Bulk), "/v1/endpoints/{endpoint_id}/replay", endpoint_id, body=options)

    @verb
    def preview_replay(self, endpoint_id: Id, **range: Unpack[ReplayRange]) -> Call[bulk.Preview]:
        """Count the events that a replay would send. Sends nothing."""
        body = {**range, "preview": True}
        return post(one(bulk.Preview), "/v1/endpoints/{endpoint_id}/replay", endpoint_id, body=body)


class Slos(Group[R_co]):
    """`client.slo`: service-level targets."""

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[stats.EndpointSlo]]:
        """One page of endpoints, each compared with its target over 30 days."""
        return get(paged(stats.EndpointSloPage), "/v1/slo", query=paging)

    each = each_of(page)

    @verb
    def default(self) -> Call[endpoints.Slo]:
        """The default target. It applies to endpoints without a target of their own."""
        return get(one(endpoints.Slo), "/v1/slo/default")

    @verb
    def set_default(
        self, *, success: float | None = None, p95_seconds: float | None = None, oldest_seconds: float | None = None
    ) -> Call[endpoints.Slo]:
        """Set the default target. Omitted fields get their built-in values."""
        body = {"success": success, "p95_seconds": p95_seconds, "oldest_seconds": oldest_seconds}
        return put(one(endpoints.Slo), "/v1/slo/default", body=body)
