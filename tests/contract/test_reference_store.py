"""The reference model's own indexes stay small and true, so that it is quick enough for simulations."""

from __future__ import annotations

import random

from doorstep.clock import SECOND
from doorstep.model.claim import Quota, Settlement
from tests.reference import ReferenceStore
from tests.reference.due_index import DueIndex
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, success


def test_an_index_gives_its_keys_by_instant_and_then_by_key() -> None:
    chance, index = random.Random(7), DueIndex()
    entries = [(chance.randrange(20), key) for key in range(200)]
    for at, key in chance.sample(entries, len(entries)):
        index.add(at, key)
    for at, key in entries[::2]:
        index.remove(at, key)
    left = sorted(entries[1::2])
    assert list(index.all()) == [key for _, key in left]
    assert list(index.until(9)) == [key for at, key in left if at <= 9]
    assert index.first_at == left[0][0]


async def test_nothing_of_a_finished_delivery_is_left_after_cleaning() -> None:
    store, org = ReferenceStore(), an_org()
    endpoint = an_endpoint(org.org_id)
    await store.put_org(org)
    await store.put_endpoint(endpoint, 0)
    await store.accept([a_submission(org.org_id, [endpoint.endpoint_id]) for _ in range(50)], 1, NOW)
    claims = await store.claim_due([Quota(endpoint.endpoint_id, 50)], NOW, NOW + SECOND, "w1")
    await store.settle([Settlement.delivered(claim, success(NOW)) for claim in claims], NOW)
    await store.clean(NOW + 1, NOW, 50)
    tables = store._tables
    assert not (tables.events or tables.deliveries or tables.by_key)
    indexes = [tables.forced, tables.leased, tables.dead, tables.removable, *tables.waiting.values()]
    assert not any(indexes)
    assert not tables.in_flight.total()
