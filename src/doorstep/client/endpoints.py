"""Endpoints and their service-level targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

from doorstep.client.call import Call, Page, Paging, delete, get, json_of, one, paged, patch, post, put
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
        """Create an endpoint with a `name` and a `url` or `handler`. Only this response contains its signing secret."""
        return post(one(NewEndpoint), "/v1/endpoints", body=fields)

    @verb
    def read(self, endpoint_id: Id) -> Call[Endpoint]:
        """One endpoint."""
        return get(one(Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def page(self, *, state: str | None = None, **paging: Unpack[Paging]) -> Call[Page[Endpoint]]:
        """One page of endpoints."""
        return get(paged(EndpointPage), "/v1/endpoints", query={"state": state, **paging})

    each = each_of(page)

    @verb
    def health(self, *, range: str | None = None, **paging: Unpack[Paging]) -> Call[Page[EndpointHealth]]:
        """One page of endpoints with their health over 24 hours, or over another `range` (see `client.stats`)."""
        return get(paged(EndpointHealthPage), "/v1/stats/endpoints", query={"range": range, **paging})

    each_health = each_of(health)

    @verb
    def change(self, endpoint_id: Id, **fields: Unpack[ChangedFields]) -> Call[Endpoint]:
        """Change only the given fields. Raises Conflict if `version` is given and is no longer the newest."""
        return patch(one(Endpoint), "/v1/endpoints/{endpoint_id}", endpoint_id, body=fields)

    @verb
    def delete(self, endpoint_id: Id) -> Call[None]:
        """Delete an endpoint. Its waiting deliveries become dead letters."""
        return delete("/v1/endpoints/{endpoint_id}", endpoint_id)

    @verb
    def pause(self, endpoint_id: Id, *, reason: str | None = None) -> Call[Endpoint]:
        """Hold an endpoint's deliveries until it is resumed. None are lost."""
        return post(one(Endpoint), "/v1/endpoints/{endpoint_id}/pause", endpoint_id, body={"reason": reason})

    @verb
    def resume(
        self, endpoint_id: Id, *, drain_per_second: float | None = None, skip_older_than: datetime | None = None
    ) -> Call[Endpoint]:
        """Resume deliveries, immediately or at a limited rate. Deliveries of old events can be skipped."""
        body = {"drain_per_second": drain_per_second, "skip_older_than": skip_older_than}
        return post(one(Endpoint), "/v1/endpoints/{endpoint_id}/resume", endpoint_id, body=body)

    @verb
    def test(self, endpoint_id: Id, *, event_type: str | None = None, payload: Any = None) -> Call[Receipt]:
        """Send a test event to this endpoint only. It is delivered like any other event."""
        body = {"event_type": event_type, "payload": json_of(payload)}
        return post(one(Receipt), "/v1/endpoints/{endpoint_id}/test", endpoint_id, body=body)

    @verb
    def rotate_secret(
        self, endpoint_id: Id, *, overlap_seconds: float | None = None, signing: Signing | None = None
    ) -> Call[RotatedSecret]:
        """Create a new signing secret. For `overlap_seconds`, by default a day, requests are signed with both the old
        and the new secret.

        `signing` changes the kind of signature.
        """
        body = {"overlap_seconds": overlap_seconds, "signing": signing}
        return post(one(RotatedSecret), "/v1/endpoints/{endpoint_id}/rotate-secret", endpoint_id, body=body)

    @verb
    def circuit(self, endpoint_id: Id) -> Call[Circuit]:
        """The state of an endpoint's circuit, and the history of that state."""
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
        """Send the events of a time range to this endpoint again."""
        body = _range(created_from, created_before, event_type, status)
        body |= {"rate_per_second": rate_per_second, "reason": reason}
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
        """Count the events that a replay would send. Sends nothing."""
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
    """`client.slo`: service-level targets."""

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[EndpointSlo]]:
        """One page of endpoints, each compared with its target over 30 days."""
        return get(paged(EndpointSloPage), "/v1/slo", query=paging)

    each = each_of(page)

    @verb
    def default(self) -> Call[Slo]:
        """The default target. It applies to endpoints without a target of their own."""
        return get(one(Slo), "/v1/slo/default")

    @verb
    def set_default(
        self, *, success: float | None = None, p95_seconds: float | None = None, oldest_seconds: float | None = None
    ) -> Call[Slo]:
        """Set the default target. Omitted fields get their built-in values."""
        body = {"success": success, "p95_seconds": p95_seconds, "oldest_seconds": oldest_seconds}
        return put(one(Slo), "/v1/slo/default", body=body)
