"""The reference model forgets what was cleaned away, and is fast enough for simulations."""

from __future__ import annotations

from doorstep.clock import SECOND
from doorstep.model.claim import Quota, Settlement
from doorstep.stores.store import Retention
from tests.reference import ReferenceStore
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, success
from tests.support.shortcuts import put


async def test_nothing_of_a_finished_delivery_is_left_after_cleaning() -> None:
    store, org = ReferenceStore(), an_org()
    endpoint = an_endpoint(org.org_id)
    await put(store, org)
    await put(store, endpoint, 0)
    await store.accept([a_submission(org.org_id, [endpoint.endpoint_id]) for _ in range(50)], {org.org_id: 1}, NOW)
    claims = await store.claim([Quota(endpoint.endpoint_id, 50)], NOW, NOW + SECOND, "w1")
    await store.settle([Settlement.delivered(claim, success(NOW)) for claim in claims], NOW)
    await store.clean(Retention(settled_before=NOW + 1), NOW, 50)
    tables = store._tables
    assert not (tables.events or tables.deliveries or tables.open)


async def test_only_open_deliveries_are_looked_through_for_those_that_are_due() -> None:
    """This keeps the model fast enough for simulations, however much was delivered before."""
    store, org = ReferenceStore(), an_org()
    endpoint = an_endpoint(org.org_id)
    await put(store, org)
    await put(store, endpoint, 0)
    await store.accept([a_submission(org.org_id, [endpoint.endpoint_id]) for _ in range(50)], {org.org_id: 1}, NOW)
    claims = await store.claim([Quota(endpoint.endpoint_id, 40)], NOW, NOW + SECOND, "w1")
    await store.settle([Settlement.delivered(claim, success(NOW)) for claim in claims[:30]], NOW)
    assert (len(store._tables.deliveries), len(store._tables.open)) == (50, 20)
