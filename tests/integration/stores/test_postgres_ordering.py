"""Ordering groups on PostgreSQL: transactions that begin or end a delivery of the same group wait for one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import select

from doorstep.clock import SECOND
from doorstep.model.action import Action, ActionKind
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.stores.sql.postgres import PostgresStore, accept, connections, settle
from doorstep.stores.sql.postgres.connections import Connection, Connections
from doorstep.stores.sql.queries.transaction import execute
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, success
from tests.support.shortcuts import put, routing_versions

PATIENCE_SECONDS = 0.3
"""Long enough for a store method that does not wait for a lock."""


class Scene:
    """Two stores on one database, and an ordering group on one endpoint."""

    def __init__(self, stores: list[PostgresStore], endpoint: Endpoint) -> None:
        self.one, self.other = stores
        self.endpoint = endpoint

    async def accept(self, store: PostgresStore, ordering_key: str | None = "a") -> UUID:
        made = a_submission(self.endpoint.org_id, [self.endpoint.endpoint_id], ordering_key=ordering_key)
        await store.accept([made], await routing_versions(store), NOW)
        return made.deliveries[0].delivery_id

    async def claim(self) -> list[Claim]:
        return await self.one.claim([Quota(self.endpoint.endpoint_id, 9)], NOW, NOW + 30 * SECOND, "w")

    async def deliver(self, store: PostgresStore, claim: Claim) -> None:
        await store.settle([Settlement.delivered(claim, success(NOW))], NOW)

    async def act(self, kind: ActionKind, *ids: UUID, store: PostgresStore | None = None) -> None:
        org_id = self.endpoint.org_id
        act = Action(kind=kind, org_id=org_id, delivery_ids=ids, actor="ops", at=NOW, revive_at=NOW)
        await (store or self.one).act(act)

    async def is_blocked(self, delivery_id: UUID) -> bool:
        return (await self.one.get(Delivery, self.endpoint.org_id, delivery_id)).blocked


@pytest.fixture
async def scene(postgres_url: str) -> AsyncIterator[Scene]:
    stores = [PostgresStore(postgres_url) for _ in range(2)]
    for store in stores:
        await store.open()
    org = an_org()
    await put(stores[0], org)
    endpoint = an_endpoint(org.org_id)
    await put(stores[0], endpoint, 0)
    yield Scene(stores, endpoint)
    for store in stores:
        await store.close()


class Pause:
    """Keeps each transaction of a pool open just before its commit."""

    def __init__(self, pool: Connections) -> None:
        self.reached, self._over = asyncio.Event(), asyncio.Event()
        run = pool.run

        async def paused(work: Callable[[Connection], Awaitable[Any]], begin: str = "BEGIN") -> Any:
            async def and_wait(connection: Connection) -> Any:
                result = await work(connection)
                self.reached.set()
                await self._over.wait()
                return result

            return await run(and_wait, begin)

        pool.run = paused  # type: ignore[method-assign]

    def end(self) -> None:
        self._over.set()

    async def during(self, first: Awaitable[Any], second: Awaitable[Any]) -> tuple[Any, Any]:
        """Run `first` up to its commit, start `second`, then let both finish."""
        begun = asyncio.ensure_future(first)
        await self.reached.wait()
        following = asyncio.ensure_future(second)
        await asyncio.wait([following], timeout=PATIENCE_SECONDS)
        self.end()
        return await asyncio.gather(begun, following)


async def test_one_that_ends_sees_one_that_is_just_being_accepted_behind_it(scene: Scene) -> None:
    assert not await scene.is_blocked(await end_during_an_accept(scene))


async def test_one_that_is_accepted_sees_that_the_one_before_is_just_ending(scene: Scene) -> None:
    assert not await scene.is_blocked(await accept_during_an_end(scene))


async def test_of_two_that_end_at_once_the_second_sees_that_both_have(scene: Scene) -> None:
    first, _, third = [await scene.accept(scene.one) for _ in range(3)]
    await scene.act(ActionKind.SKIP, first)
    await scene.act(ActionKind.RETRY, first)  # so that two deliveries of the group are in progress
    one, other = await scene.claim()
    await Pause(scene.other._hot).during(scene.deliver(scene.other, one), scene.deliver(scene.one, other))
    assert not await scene.is_blocked(third)


async def test_one_whose_row_is_held_by_a_process_that_dies_is_waited_for_not_passed_over(
    scene: Scene, postgres_url: str
) -> None:
    _, second = [await scene.accept(scene.one) for _ in range(2)]
    (claim,) = await scene.claim()
    holder = await asyncpg.connect(postgres_url, server_settings={"doorstep.org": "*"})
    await holder.execute("BEGIN")
    await holder.fetch("SELECT FROM doorstep_deliveries WHERE uid = $1 FOR UPDATE", second)
    ending = asyncio.ensure_future(scene.deliver(scene.one, claim))
    await asyncio.wait([ending], timeout=PATIENCE_SECONDS)
    holder.terminate()
    await ending
    assert not await scene.is_blocked(second)


@pytest.mark.parametrize("kind", ActionKind)
async def test_an_act_and_an_end_in_one_line_wait_for_each_other_but_not_in_a_circle(
    scene: Scene, kind: ActionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_CONFLICT_TRIES", 1)  # so that a deadlock raises instead of being retried
    first, second, third = [await scene.accept(scene.one) for _ in range(3)]
    (claim,) = await scene.claim()
    acting = scene.act(kind, first, second, store=scene.other)
    await Pause(scene.other._cold).during(acting, scene.deliver(scene.one, claim))
    left = third if kind in (ActionKind.SKIP, ActionKind.CANCEL) else second
    assert not await scene.is_blocked(left)


async def test_the_repetition_of_a_call_waits_for_the_first_and_blocks_nothing(scene: Scene) -> None:
    made = a_submission(scene.endpoint.org_id, [scene.endpoint.endpoint_id], ordering_key="a")
    version = await routing_versions(scene.one)
    calls = [store.accept([made], version, NOW) for store in (scene.other, scene.one)]
    await Pause(scene.other._hot).during(*calls)
    assert not await scene.is_blocked(made.deliveries[0].delivery_id)
    assert len(await scene.claim()) == 1


async def end_during_an_accept(scene: Scene) -> UUID:
    await scene.accept(scene.one)
    (claim,) = await scene.claim()
    accepted, _ = await Pause(scene.other._hot).during(scene.accept(scene.other), scene.deliver(scene.one, claim))
    return accepted  # type: ignore[no-any-return]


async def accept_during_an_end(scene: Scene) -> UUID:
    await scene.accept(scene.one)
    (claim,) = await scene.claim()
    _, accepted = await Pause(scene.other._hot).during(scene.deliver(scene.other, claim), scene.accept(scene.one))
    return accepted  # type: ignore[no-any-return]


# -- negative controls: without locks on the groups, deliveries stay blocked -------------------------------


@pytest.mark.parametrize("at_once", [end_during_an_accept, accept_during_an_end])
async def test_if_accepts_took_no_turns_some_would_be_left_behind(
    scene: Scene, at_once: Callable[[Scene], Awaitable[UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept, "LOCK_ORDERING_GROUPS", "SELECT $1::bigint[], $2::text[]")
    assert await scene.is_blocked(await at_once(scene))


@pytest.mark.parametrize("at_once", [end_during_an_accept, accept_during_an_end])
async def test_if_ends_took_no_turns_some_would_be_left_behind(
    scene: Scene, at_once: Callable[[Scene], Awaitable[UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "lock_ordering_groups", lambda keys: execute(select(1)))
    assert await scene.is_blocked(await at_once(scene))


# -- dead-lettering without an attempt ---------------------------------------------------------------------


async def test_a_burial_takes_the_turn_of_whoever_it_comes_to_bury_in_the_end(scene: Scene, postgres_url: str) -> None:
    plain = await scene.accept(scene.one, ordering_key=None)
    await scene.accept(scene.one)
    holder = await asyncpg.connect(postgres_url, server_settings={"doorstep.org": "*"})
    await holder.execute("BEGIN")
    await holder.execute(CLAIM_ONE, plain, NOW + 30 * SECOND)
    accepting_behind = Pause(scene.other._hot)
    accepted = asyncio.ensure_future(scene.accept(scene.other))
    await accepting_behind.reached.wait()
    burying = asyncio.ensure_future(
        scene.one.dead_letter_waiting(scene.endpoint.endpoint_id, "SKIPPED", "skipped", NOW, 1)
    )
    await asyncio.wait([burying], timeout=PATIENCE_SECONDS)
    await holder.execute("COMMIT")
    await holder.close()
    await asyncio.wait([burying], timeout=PATIENCE_SECONDS)
    accepting_behind.end()
    await asyncio.gather(accepted, burying)
    for claim in await scene.claim():  # the first delivery of the group, unless it was dead-lettered
        await scene.deliver(scene.one, claim)
    assert not await scene.is_blocked(accepted.result())


CLAIM_ONE = "UPDATE doorstep_deliveries SET state = 'in_progress', due_at = $2 WHERE uid = $1"
