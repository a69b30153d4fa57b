"""Targets of endpoints, and how they stand against them."""

from __future__ import annotations

from doorstep.client.answers.stats import EndpointSlo, Slo
from doorstep.client.call import Call, Page, get, one, paged, put
from doorstep.client.verbs import Group, R_co, each_of, verb


class Slos(Group[R_co]):
    """`client.slo`."""

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[EndpointSlo]]:
        """One page of the endpoints, each against its target over 30 days."""
        return get(paged("endpoints", EndpointSlo), "/v1/slo", query={"limit": limit, "cursor": cursor})

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
