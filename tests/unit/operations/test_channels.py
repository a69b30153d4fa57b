"""Channels: created completely or not at all, validated before they are stored, tested within limits, and resumed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

import pytest

from doorstep.clock import DAY, SECOND, to_iso
from doorstep.engine.directory import unseal_headers
from doorstep.errors import Conflict, InvalidInput, NotFound, Overloaded, StoreUnavailable
from doorstep.model.alert import OPERATIONS_ORG, ChannelKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import AuditFilter
from doorstep.operations.channels import CHANNELS_MAX, ChannelForm, check
from doorstep.policy.alerts import ADDRESSES_AN_HOUR_MAX, TESTS_AN_HOUR_MAX
from tests.support.builders import an_endpoint, an_org, new_id
from tests.support.matrix import each_case
from tests.support.shortcuts import count_states, living_endpoints, put
from tests.unit.operations.channel_scene import Desk


@pytest.fixture
async def desk() -> Desk:
    made = Desk()
    await made.bench.prepare()
    return made


# -- creating and deleting ---------------------------------------------------------------------------------


async def test_channels_do_not_count_as_endpoints_of_anybody(desk: Desk) -> None:
    for _ in range(3):
        await desk.create()
    assert await desk.endpoints() == 3


async def test_a_create_that_fails_leaves_no_endpoint(desk: Desk) -> None:
    for _ in range(CHANNELS_MAX):
        await desk.create()
    with pytest.raises(Conflict):
        await desk.create()
    assert await desk.endpoints() == CHANNELS_MAX


WRITES = ["write Channel+Endpoint", "write Endpoint", "write Channel"]


@each_case("verb", WRITES)
@each_case("act", ["create", "delete"])
async def test_wherever_a_create_or_a_delete_is_interrupted_there_is_no_half_a_channel(
    desk: Desk, act: str, verb: str
) -> None:
    """Each store method in turn fails when it is called, each time with an existing channel."""
    kept = await desk.create()
    desk.bench.failing.away = {verb}
    with suppress(StoreUnavailable):
        await (desk.create() if act == "create" else desk.desk.delete(desk.org_id, kept.channel_id, "ops"))
    desk.bench.failing.away = set()
    channels = {one.channel_id for one in await desk.desk.reader.channels(desk.org_id)}
    endpoints = await living_endpoints(desk.bench.store)
    assert channels == {one.endpoint_id for one in endpoints if one.org_id == OPERATIONS_ORG}
    assert (kept.channel_id in channels) is (act == "create" or verb == "write Channel+Endpoint")


async def test_a_channel_that_was_deleted_is_gone_with_its_endpoint_once(desk: Desk) -> None:
    channel = await desk.create()
    deletions = (desk.desk.delete(desk.org_id, channel.channel_id, "ops") for _ in range(3))
    results = await asyncio.gather(*deletions, return_exceptions=True)
    assert [type(one) for one in results].count(NotFound) == 2
    assert await desk.endpoints() == 0


async def test_a_channel_is_only_for_endpoints_of_its_organization(desk: Desk) -> None:
    (own, *_) = (one for one in (await living_endpoints(desk.bench.store)))
    other = an_org()
    await put(desk.bench.store, other)
    stranger, gone = an_endpoint(other.org_id), an_endpoint(desk.org_id, state=EndpointState.DELETED)
    for endpoint in (stranger, gone):
        await put(desk.bench.store, endpoint, 0)
    for wrong in (stranger.endpoint_id, gone.endpoint_id, new_id()):
        with pytest.raises(InvalidInput) as caught:
            await desk.create(endpoint_ids=(own.endpoint_id, wrong))
        assert caught.value.field == "endpoint_ids"
        assert str(wrong) in caught.value.message
    assert (await desk.create(endpoint_ids=(own.endpoint_id,))).endpoint_ids == (own.endpoint_id,)
    assert await desk.endpoints() == 1


@each_case("kind", [ChannelKind.SLACK, ChannelKind.EMAIL, ChannelKind.WEBHOOK, ChannelKind.APPRISE])
async def test_every_channel_has_a_pace(desk: Desk, kind: ChannelKind) -> None:
    targets = {ChannelKind.EMAIL: "a@shop.example", ChannelKind.APPRISE: "json://shop.example"}
    channel = await desk.create(kind=kind, target=targets.get(kind, "https://shop.example/"))
    endpoint = await desk.bench.store.get(Endpoint, OPERATIONS_ORG, channel.channel_id)
    assert endpoint.concurrency_max is not None and endpoint.rate_per_second is not None


# -- testing -----------------------------------------------------------------------------------------------


async def test_a_channel_is_tested_once_in_five_seconds(desk: Desk) -> None:
    channel = await desk.create()
    await desk.test(channel)
    for passed, wait in ((0, 5), (2, 3), (2.999, 1)):
        desk.bench.clock.advance(passed)
        with pytest.raises(Overloaded) as caught:
            await desk.test(channel)
        assert caught.value.retry_after_seconds == wait
    desk.bench.clock.advance(0.001)
    await desk.test(channel)
    await desk.test(await desk.create())  # another channel has its own limit


async def test_an_organization_makes_so_many_tests_an_hour(desk: Desk) -> None:
    channel = await desk.create()
    for _ in range(TESTS_AN_HOUR_MAX):
        await desk.test(channel)
        desk.bench.clock.advance(6)
    with pytest.raises(Overloaded) as caught:
        await desk.test(channel)
    assert caught.value.retry_after_seconds == 3_600 - 6 * TESTS_AN_HOUR_MAX
    desk.bench.clock.advance(caught.value.retry_after_seconds)
    await desk.test(channel)
    with pytest.raises(Overloaded):
        desk.bench.clock.advance(5.5)
        await desk.test(channel)


async def test_a_channel_that_is_deleted_takes_none_of_the_tests_with_it(desk: Desk) -> None:
    for _ in range(TESTS_AN_HOUR_MAX):
        channel = await desk.create()
        await desk.test(channel)
        await desk.desk.delete(desk.org_id, channel.channel_id, "ops")
    other = an_org()
    await put(desk.bench.store, other)
    theirs = await desk.create(other.org_id)
    with pytest.raises(Overloaded):
        await desk.test(await desk.create())
    await desk.desk.test(other.org_id, theirs.channel_id, "ops")  # another organization has its own limit


async def test_tests_send_mail_to_so_many_addresses_an_hour(desk: Desk) -> None:
    everybody = ",".join(f"{number}@shop.example" for number in range(20))
    for _ in range(ADDRESSES_AN_HOUR_MAX // 20):
        channel = await desk.create(kind=ChannelKind.EMAIL, target=everybody)
        await desk.test(channel)
        await desk.desk.delete(desk.org_id, channel.channel_id, "ops")
        desk.bench.clock.advance(60)
    single = await desk.create(kind=ChannelKind.EMAIL, target="a@shop.example")
    with pytest.raises(Overloaded) as caught:
        await desk.test(single)
    assert caught.value.retry_after_seconds == 3_600 - 60 * (ADDRESSES_AN_HOUR_MAX // 20)
    await desk.test(await desk.create())  # the limit applies only to email channels
    desk.bench.clock.advance(caught.value.retry_after_seconds)
    await desk.test(single)


async def test_the_last_test_of_each_channel_is_remembered_and_those_of_deleted_ones_for_an_hour(desk: Desk) -> None:
    kept, gone = await desk.create(), await desk.create()
    for channel in (kept, gone):
        await desk.test(channel)
    await desk.desk.delete(desk.org_id, gone.channel_id, "ops")
    desk.bench.clock.advance(3_600)
    other = await desk.create()
    await desk.test(other)
    _, remembered = await desk.desk.reader.channels_and_tests(desk.org_id)
    assert [one.channel_id for one in remembered.tests] == [kept.channel_id, other.channel_id]
    assert (await desk.desk.reader.view(desk.org_id, kept.channel_id)).last_test is not None


async def test_of_tests_at_the_same_moment_one_is_sent_and_all_that_are_sent_are_audited(desk: Desk) -> None:
    channel = await desk.create()
    results = await asyncio.gather(*(desk.test(channel) for _ in range(10)), return_exceptions=True)
    assert [type(one) for one in results].count(Overloaded) == 9
    lines = (await desk.bench.store.page(desk.org_id, AuditFilter(action="channel.test"))).items
    sent = await living_endpoints(desk.bench.store)
    assert len(lines) == 1 and sent
    assert sum((await count_states(desk.bench.store)).values()) == 1


# -- delivery health ---------------------------------------------------------------------------------------


async def test_a_channel_shows_what_came_of_its_test_and_when_a_message_last_arrived(desk: Desk) -> None:
    channel = await desk.create()
    view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
    assert (view.last_test, view.last_delivered_at, view.last_failed) == (None, None, None)
    await desk.test(channel)
    view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
    assert view.last_test is not None and view.last_test.state == "pending"
    await desk.bench.deliver(200)
    arrived_at = desk.bench.clock.now()
    view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
    assert view.last_test is not None and view.last_test.state == "delivered"
    assert view.last_delivered_at == view.last_test.settled_at == arrived_at


async def test_an_error_is_shown_while_the_message_is_still_tried_and_what_arrived_before_stays_shown(
    desk: Desk,
) -> None:
    channel = await desk.create()
    for passed in (90, 3 * 86_400):  # found in the minute roll-ups, then in the hourly ones
        await desk.test(channel)
        await desk.bench.deliver(200)
        arrived_at = desk.bench.clock.now()
        desk.bench.clock.advance(passed)
        await desk.test(channel)
        await desk.bench.deliver(503)
        view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
        assert view.last_failed is not None and view.last_failed.state == "pending"
        assert (view.last_failed.code, view.circuit.failures > 0) == ("SERVICE_UNAVAILABLE", True)
        assert view.last_delivered_at is not None
        assert 0 <= arrived_at - view.last_delivered_at <= (60 if passed == 90 else 3_600) * SECOND, (
            f"{to_iso(arrived_at)} and {to_iso(view.last_delivered_at)}"
        )
        desk.bench.clock.advance(20_000)
        await desk.bench.deliver(200)
        desk.bench.clock.advance(20_000)


async def test_the_newest_error_is_shown(desk: Desk) -> None:
    channel = await desk.create()
    for status, code in ((404, "NOT_FOUND"), (400, "INVALID_FORMAT"), (503, "SERVICE_UNAVAILABLE")):
        desk.bench.clock.advance(10)
        await desk.test(channel)
        await desk.bench.deliver(status)
        view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
        assert view.last_failed is not None and view.last_failed.code == code


async def test_a_disabled_channel_is_resumed_with_what_waits_and_is_not_stale(desk: Desk) -> None:
    channel = await desk.create()
    await desk.disable(channel)
    await desk.bench.directory.refresh()
    await desk.test(channel)
    desk.bench.clock.advance(DAY / SECOND)
    await desk.test(channel)
    await desk.bench.deliver(200)
    assert (await count_states(desk.bench.store))[DeliveryState.PENDING] == 2
    desk.bench.clock.advance(60)
    await desk.desk.resume(desk.org_id, channel.channel_id, "ops")
    view = await desk.desk.reader.view(desk.org_id, channel.channel_id)
    assert (view.endpoint.state, view.circuit.failures, view.last_failed) == ("active", 0, None)
    await desk.bench.deliver(200)
    tally = await count_states(desk.bench.store)
    assert (tally[DeliveryState.DELIVERED], tally[DeliveryState.DEAD]) == (1, 1)
    assert len((await desk.bench.store.page(desk.org_id, AuditFilter(action="channel.resume"))).items) == 1


async def test_nothing_is_resumed_that_is_not_in_the_audit(desk: Desk) -> None:
    channel = await desk.create()
    await desk.disable(channel)
    desk.bench.failing.refuses = lambda verb, args: verb == "write AuditEntry" and args[1].action == "channel.resume"
    with pytest.raises(StoreUnavailable):
        await desk.desk.resume(desk.org_id, channel.channel_id, "ops")
    assert (await desk.bench.store.get(Endpoint, OPERATIONS_ORG, channel.channel_id)).state is EndpointState.DISABLED


async def test_a_list_of_channels_asks_for_all_of_them_together_and_by_itself_only_for_tests_and_failures(
    desk: Desk,
) -> None:
    channels = [await desk.create() for _ in range(10)]
    await desk.test(channels[0])
    await desk.bench.deliver(503)
    desk.bench.failing.calls.clear()
    assert len(await desk.desk.reader.views(desk.org_id)) == 10
    assert sorted(desk.bench.failing.calls) == sorted(
        [
            "find AlertConfigs",
            "get_many Endpoint",
            "get_many Circuit",
            "series of endpoints",
            "series of endpoints",
            "figures of endpoints",
            "find EventDeliveries",
            "page RetryQueueFilter",
        ]
    )


async def test_a_channel_of_others_can_be_neither_tested_nor_resumed_nor_deleted(desk: Desk) -> None:
    channel = await desk.create()
    stranger = UUID(int=7)
    for act in (desk.desk.test, desk.desk.resume, desk.desk.delete):
        with pytest.raises(NotFound):
            await act(stranger, channel.channel_id, "thief")


# -- addresses ---------------------------------------------------------------------------------------------

GOOD = ["a@shop.example", "a.b+c@shop.example", "root@localhost", "o'hara_1@a-b.c--d.example", "a" * 64 + "@b.example"]
BAD = [
    "a..b@example.com", ".a@example.com", "a.@example.com", "a@-b", "a@b-", "a@b..c", "a@.b", "a@b.", "a@", "@b", "a",
    "a@b@c", "a b@example.com", '"a b"@example.com', "a@[127.0.0.1]", "a@exa_mple.com", "ä@example.com",
    "a@exämple.com", "a" * 65 + "@example.com", "a@" + "b" * 64, "a@" + ".".join(["b" * 60] * 5), "a@b.example\nc",
    "<a@b.example>", "a@b.example;c@d.example",
]  # fmt: skip


@each_case("address", GOOD)
def test_an_address_that_can_be_one_is_taken(address: str) -> None:
    check(ChannelForm(name="ops", kind=ChannelKind.EMAIL, target=f"x@shop.example, {address}"))


@each_case("address", BAD, ids=ascii)
def test_an_address_that_cannot_be_one_is_refused_by_its_name(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(ChannelForm(name="ops", kind=ChannelKind.EMAIL, target=f"x@shop.example, {address}"))
    assert caught.value.field == "target"
    assert repr(address[:100])[1:-1] in caught.value.message


async def test_an_address_that_is_named_twice_is_one(desk: Desk) -> None:
    target = "a@shop.example, b@shop.example,a@shop.example"
    channel = await desk.create(kind=ChannelKind.EMAIL, target=target)
    endpoint = await desk.bench.store.get(Endpoint, OPERATIONS_ORG, channel.channel_id)
    kept = unseal_headers(endpoint, desk.bench.sealer)
    assert (channel.shown, kept["target"]) == ("a@shop.example, b@shop.example", "a@shop.example,b@shop.example")


@each_case(
    "target",
    ["json://a.example/ dbus://", "json://a.example/,json://b.example", "json://a;dbus://", " json://a", "json://a b"],
)
def test_an_apprise_channel_has_one_receiver(target: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(ChannelForm(name="ops", kind=ChannelKind.APPRISE, target=target))
    assert (caught.value.field, "one URL" in caught.value.message) == ("target", True)


def test_commas_within_an_apprise_url_are_its_own() -> None:
    target = "tgram://123:abc/1,2;3?to=4,5"
    check(ChannelForm(name="ops", kind=ChannelKind.APPRISE, target=target))


@each_case("target", ["syslog://", "SYSLOG://localhost", "dbus://", "windows://", "file:///tmp/x"])
def test_a_url_for_this_machine_alone_is_refused(target: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(ChannelForm(name="ops", kind=ChannelKind.APPRISE, target=target))
    assert (caught.value.field, "own machine" in caught.value.message) == ("target", True)
