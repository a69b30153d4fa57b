"""Notifications that are not HTTP requests end within their channel's timeout, and no organization delays another's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from doorstep.clock import AnchoredClock
from doorstep.errors import Transient
from doorstep.model.alert import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.operations import notifiers
from doorstep.operations.notifiers import EMAIL_HANDLER, Notifiers
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.handler_replies import Received
from doorstep.transports.mail import MailServer
from tests.support.builders import an_org, new_id
from tests.support.loop_receiver import Receiver, receiving
from tests.support.ports import free_port
from tests.support.sending import Sending, a_transmission
from tests.support.shortcuts import put
from tests.unit.operations.channel_scene import Desk

OPEN = AddressGuard([ip_network("127.0.0.0/8")])
ALERT = {"title": "[Doorstep] shop: down", "body": "It is down.", "type": "failure"}


@pytest.fixture
async def desk() -> Desk:
    made = Desk(timeout_seconds_max=10.0)
    await made.bench.prepare()
    return made


@pytest.fixture
async def tarpit() -> AsyncIterator[Receiver]:
    """A receiver that accepts every message and answers none."""
    async with receiving() as it:
        it.hold.clear()
        yield it


def sending_by(desk: Desk, server: MailServer | None = None) -> Notifiers:
    return Notifiers(desk.bench.store, desk.bench.directory, desk.bench.sealer, OPEN, server)


def message(channel: Channel, said: Mapping[str, Any] = ALERT, attempt: int = 1) -> Received:
    return Received(
        event_id=new_id(),
        delivery_id=new_id(),
        event_type="doorstep.message",
        payload=msgspec.json.encode(said),
        attempt=attempt,
        retry_attempts=attempt - 1,
        correlation_id="x",
        accepted_at=0,
        endpoint_id=channel.channel_id,
        org_id=OPERATIONS_ORG,
    )


async def test_one_organization_s_tarpit_leaves_places_for_others_and_does_not_count_for_its_own_other_channels(
    desk: Desk, tarpit: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifiers, "_WAIT_SECONDS", 0.0)
    other = an_org()
    await put(desk.bench.store, other)
    stuck = [await _apprise(desk, f"json://127.0.0.1:{tarpit.port}/{number}") for number in range(3)]
    sender = sending_by(desk)
    held = [asyncio.create_task(sender.apprise(message(one))) for one in stuck[:2]]
    while len(tarpit.requests) < 2:
        await asyncio.sleep(0)
    for attempt, again in ((1, 20), (2, 40), (3, 80)):
        with pytest.raises(Transient) as caught:
            await sender.apprise(message(stuck[2], attempt=attempt))
        assert (caught.value.code, caught.value.retry_after) == ("NO_PLACE", again)
    async with receiving() as receiver:
        healthy = await desk.create(other.org_id, kind=ChannelKind.APPRISE, target=f"json://127.0.0.1:{receiver.port}/")
        await sender.apprise(message(healthy))
        assert len(receiver.requests) == 1
    tarpit.hold.set()
    await asyncio.gather(*held)


async def _apprise(desk: Desk, target: str) -> Channel:
    return await desk.create(kind=ChannelKind.APPRISE, target=target)


@pytest.mark.parametrize("kind", [ChannelKind.EMAIL, ChannelKind.APPRISE])
async def test_a_message_is_given_up_within_the_time_that_its_channel_has(kind: ChannelKind) -> None:
    """This also holds if the timeout is shorter than usual because leases are short. Otherwise, the attempt would be
    abandoned without an error message."""
    desk = Desk(timeout_seconds_max=1.5)
    await desk.bench.prepare()
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts connections and never answers
        port = deaf.getsockname()[1]
        targets = {ChannelKind.EMAIL: "a@shop.example", ChannelKind.APPRISE: f"json://127.0.0.1:{port}/"}
        channel = await desk.create(kind=kind, target=targets[kind])
        sender = sending_by(desk, MailServer.from_url(f"smtp://127.0.0.1:{port}", "doorstep@shop.example"))
        began = asyncio.get_running_loop().time()
        with pytest.raises(Transient) as caught:
            if kind is ChannelKind.EMAIL:
                await asyncio.to_thread(sender.email, message(channel, {"subject": "s", "text": "t"}))
            else:
                await sender.apprise(message(channel))
    assert caught.value.code == "TIMEOUT"
    assert asyncio.get_running_loop().time() - began < 1.5


async def test_an_unreachable_mail_server_is_reported_without_a_traceback_which_would_look_like_a_bug(
    desk: Desk,
) -> None:
    channel = await desk.create(kind=ChannelKind.EMAIL, target="a@shop.example")
    server = MailServer.from_url(f"smtp://127.0.0.1:{free_port()}", "doorstep@shop.example")
    transport = HandlerTransport(AnchoredClock(), sending_by(desk, server).handlers, threads_max=1)
    attempt = a_transmission(EMAIL_HANDLER, b'{"subject": "s", "text": "t"}')
    claim = attempt.claim._replace(endpoint_id=channel.channel_id, attempt=1, retry_attempts=0)
    reply = await Sending(transport).one(attempt._replace(claim=claim))
    await transport.close()
    assert reply.failure is not None
    assert (reply.failure.code, reply.failure.detail) == ("CONNECTION", "")
    assert reply.failure.message == "The mail server cannot be reached: Connection refused."
