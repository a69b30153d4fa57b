"""Deliveries that messages announce, on an emulator of AWS: what the delivery function claims, and what it leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from doorstep.app import Doorstep
from doorstep.aws.steps import Steps
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from doorstep.model.event import EventStatus
from doorstep.stores.dynamodb.client import Aws
from doorstep.stores.dynamodb.messages import DueMessage
from doorstep.stores.dynamodb.store import DynamoStore
from doorstep.stores.dynamodb.tables import TableIndex
from tests.support.receiver import Receiver, receiving

pytestmark = pytest.mark.full


class Function:
    """An open program on a table, and a worker that is run by messages."""

    def __init__(self, doorstep: Doorstep, receiver: Receiver) -> None:
        self.doorstep, self.receiver = doorstep, receiver
        store = doorstep.components.store
        assert isinstance(store, DynamoStore)
        self.store = store
        self._steps = Steps(doorstep.components)

    async def sent(self, count: int) -> list[DueMessage]:
        """Send events; returns the messages of their deliveries."""
        events = [(await self.doorstep.send("lead.created", {"n": number})).event_id for number in range(count)]
        found = [await self.doorstep.deliveries(event_id) for event_id in events]
        return [DueMessage(one.event_id, one.delivery_id, 1) for deliveries in found for one in deliveries]

    async def call(self, messages: Sequence[DueMessage] | None) -> None:
        self.store.announced = messages
        await self._steps.directory.refresh()
        async with self._steps.writing():
            await self._steps.deliverer.round()

    async def status(self, event_id: UUID) -> str:
        return str((await self.doorstep.event(event_id)).status)


@asynccontextmanager
async def function(url: str) -> AsyncIterator[Function]:
    settings = Settings(database_url=url, secret_key=new_secret_key(), allow_addresses="127.0.0.0/8")
    doorstep = Doorstep(settings)
    with receiving() as receiver:
        await doorstep.open()
        try:
            await doorstep.create_endpoint(name="crm", url=receiver.url, event_types=["lead.*"])
            yield Function(doorstep, receiver)
        finally:
            await doorstep.close()


async def test_a_message_leads_to_its_delivery_though_every_index_is_late(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Aws.query

    async def nothing_yet(aws: Aws, partition: str, *, index: TableIndex | None = None, **more: Any) -> list[Any]:
        return [] if index is not None else await read(aws, partition, **more)

    async with function(dynamodb_url) as called:
        (message,) = await called.sent(1)
        with monkeypatch.context() as late:
            late.setattr(Aws, "query", nothing_yet)
            await called.call(None)  # a worker that looks into the index
            assert called.receiver.received == []
            await called.call([message])
        assert len(called.receiver.received) == 1
        assert await called.status(message.event_id) == EventStatus.DELIVERED


async def test_only_what_is_announced_is_attempted_and_a_repeated_message_does_nothing(dynamodb_url: str) -> None:
    async with function(dynamodb_url) as called:
        first, second = await called.sent(2)
        await called.call([first, first])
        await called.call([first])
        assert len(called.receiver.received) == 1
        assert await called.status(second.event_id) == EventStatus.RECEIVED


async def test_a_paused_endpoint_gets_nothing_though_a_message_announces_its_delivery(dynamodb_url: str) -> None:
    async with function(dynamodb_url) as called:
        (message,) = await called.sent(1)
        endpoints = called.doorstep.components.endpoints
        (endpoint,) = await called.doorstep.endpoints()
        await endpoints.pause(DEFAULT_ORG, endpoint.endpoint_id, "tests")
        await called.call([message])
        assert called.receiver.received == []
        assert await called.status(message.event_id) == EventStatus.RECEIVED


async def test_a_message_for_a_delivery_that_does_not_exist_is_harmless(dynamodb_url: str) -> None:
    async with function(dynamodb_url) as called:
        await called.call([DueMessage(UUID(int=1), UUID(int=2), 1)])
        assert called.receiver.received == []
