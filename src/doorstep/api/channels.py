"""Channels: where an organization wants to be told of alerts."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from doorstep.api.auth import Caller
from doorstep.api.channel_schemas import ChannelIn, ChannelOut, ChannelsOut, NewChannelOut, TestSentOut
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination
from doorstep.app import Doorstep


def channel_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/channels", "alerts")

    @router.post("", status_code=201)
    async def create_channel(body: ChannelIn, caller: Caller) -> NewChannelOut:
        """Create a channel. For a webhook the answer holds the signing secret, which cannot be seen again."""
        desk = doorstep.components.channels
        channel, secret = await desk.create(body.form(), caller.org_id, caller.prefix)
        return NewChannelOut.with_secret(await desk.reading.view(caller.org_id, channel.channel_id), secret)

    @router.get("")
    async def list_channels(caller: Caller) -> ChannelsOut:
        """The channels of your organization in the order of their creation."""
        channels = [ChannelOut.of(one) for one in await doorstep.components.channels.reading.views(caller.org_id)]
        return ChannelsOut(channels=channels, pagination=CountedPagination.whole(channels))

    @router.get("/{channel_id}")
    async def read_channel(channel_id: UUID, caller: Caller) -> ChannelOut:
        """One channel, and how it fares."""
        return ChannelOut.of(await doorstep.components.channels.reading.view(caller.org_id, channel_id))

    @router.post("/{channel_id}/test", status_code=202)
    async def test_channel(channel_id: UUID, caller: Caller) -> TestSentOut:
        """Send a message that says that it is a test: once in 5 seconds, and 20 times an hour."""
        test = await doorstep.components.channels.test(caller.org_id, channel_id, caller.prefix)
        return TestSentOut(channel_id=channel_id, message_id=test.message_id)

    @router.post("/{channel_id}/resume")
    async def resume_channel(channel_id: UUID, caller: Caller) -> ChannelOut:
        """Send there again after it was disabled: what waits too, unless it is older than a day."""
        desk = doorstep.components.channels
        await desk.resume(caller.org_id, channel_id, caller.prefix)
        return ChannelOut.of(await desk.reading.view(caller.org_id, channel_id))

    @router.delete("/{channel_id}", status_code=204)
    async def delete_channel(channel_id: UUID, caller: Caller) -> None:
        """Delete a channel; what still waits for it is dropped."""
        await doorstep.components.channels.delete(caller.org_id, channel_id, caller.prefix)

    return router
