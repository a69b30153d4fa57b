"""Alert channels: create, test, resume and delete them, and show their health.

A channel is an endpoint in a reserved organization, so its messages are delivered and retried like any other event.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.engine.accept import Accepter, Draft, new_correlation_id
from doorstep.engine.directory import RACES_MAX, Directory
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.alert import OPERATIONS_ORG, AlertConfigs, Channel, ChannelKind, ChannelTest, ChannelTests, Rule
from doorstep.model.attempt import Code
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Circuit, Endpoint, EndpointState, RetryPolicy
from doorstep.model.listing import DeadLetterFilter, EventDeliveries, RetryQueueFilter
from doorstep.model.org import Org
from doorstep.model.record import Record, uuid7
from doorstep.model.rollup import Figures, Span
from doorstep.operations.alert_batch import MESSAGE
from doorstep.operations.endpoint_rules import EndpointForm, EndpointRules, check_plain_host, new_endpoint
from doorstep.operations.endpoints import EndpointService, check_endpoints_exist
from doorstep.operations.keys import name_of
from doorstep.operations.notifiers import APPRISE_HANDLER, EMAIL_HANDLER, OWNER, TARGET, TIMEOUT_SECONDS
from doorstep.operations.reader import circuits_of
from doorstep.policy.alert_messages import channel_test_message, payload_for
from doorstep.policy.alerts import check_pace, remembered
from doorstep.stores.limits import check_name, check_storable
from doorstep.stores.store import Delete, Put, Store
from doorstep.transports.apprise import LOCAL_SCHEMES, is_installed

CONFIG_MAX = 1_000
"""The maximum number of rules, channels and silences in one organization, all counted together. The record of its
channel tests is not counted."""
CHANNELS_MAX = 50
"""The maximum number of channels in one organization. It may be slightly exceeded if several channels are created at
the same time."""
_STALE = DAY
"""When a channel is resumed, messages older than this are dropped; their alerts are still listed."""


class ChannelService:
    def __init__(
        self,
        store: Store,
        directory: Directory,
        clock: Clock,
        endpoints: EndpointService,
        accepter: Accepter,
        endpoint_rules: EndpointRules,
        console: str,
        *,
        has_mail: bool,
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._endpoints = endpoints
        self._accepter = accepter
        self._endpoint_rules = endpoint_rules
        self._console = console
        self.unavailable = {
            **({} if has_mail else {ChannelKind.EMAIL: _NO_MAIL}),
            **({} if is_installed() else {ChannelKind.APPRISE: _NO_APPRISE}),
        }
        """The kinds of channels that cannot be created here, each with the reason."""
        self.reader = ChannelReader(store, clock)

    # -- creating and deleting -----------------------------------------------------------------------------

    async def create(self, form: ChannelForm, org_id: UUID, actor: str) -> tuple[Channel, str]:
        """Create a channel. Returns the channel, and the key with which the receiver of a webhook verifies
        signatures."""
        check(form, self.unavailable)
        await check_endpoints_exist(self._store, org_id, form.endpoint_ids, "endpoint_ids")
        if len(await self.reader.channels(org_id)) >= CHANNELS_MAX:
            raise Conflict(f"an organization has at most {CHANNELS_MAX} channels; delete some first")
        await self._prepare_org()
        endpoint, verifier = await self._new_endpoint(form, org_id)
        channel = Channel(
            channel_id=endpoint.endpoint_id,
            org_id=org_id,
            name=form.name,
            means=form.kind,
            shown=shown(form),
            rules=form.rules,
            endpoint_ids=form.endpoint_ids,
            recoveries=form.recoveries,
            created_at=endpoint.created_at,
        )
        entry = self._audit_entry(channel, actor, "channel.create")
        put_endpoint = Put(document=endpoint, expected_version=0)
        put_channel = Put(document=channel, expected_version=0, limit=CONFIG_MAX)
        created = await self._store.write([put_endpoint, put_channel], entry)
        assert created, "its id is new"
        await self._directory.reload((OPERATIONS_ORG,))
        return replace(channel, version=1), verifier

    async def _new_endpoint(self, form: ChannelForm, owner: UUID) -> tuple[Endpoint, str]:
        """The endpoint of a new channel. An error in its URL or headers is reported for the channel's field
        `target`."""
        now = self._clock.now()
        endpoint = endpoint_form(form, owner, min(TIMEOUT_SECONDS, self._endpoint_rules.timeout_seconds_max))
        try:
            await check_plain_host(endpoint.url, None, self._endpoint_rules.guard)
            return new_endpoint(endpoint, self._endpoint_rules, endpoint_id=uuid7(now), org_id=OPERATIONS_ORG, now=now)
        except InvalidInput as error:
            raise InvalidInput("target" if error.field in ("url", "headers") else error.field, error.message) from None

    async def delete(self, org_id: UUID, channel_id: UUID, actor: str, reason: str = "") -> None:
        """Delete a channel. Messages that are still waiting are dropped when a worker claims them."""
        check_storable("reason", reason)
        name = await name_of(self._store, org_id, actor)
        for _ in range(RACES_MAX):
            channel = await self.reader.channel(org_id, channel_id)
            endpoint = await self._store.get(Endpoint, OPERATIONS_ORG, channel_id)
            deleted = replace(
                endpoint,
                state=EndpointState.DELETED,
                state_reason=f"deleted by {name}",
                updated_at=self._clock.now(),
            )
            put = Put(document=deleted, expected_version=endpoint.version)
            entry = self._audit_entry(channel, actor, "channel.delete", reason)
            if await self._store.write([put, Delete(document=channel)], entry):
                await self._directory.reload((OPERATIONS_ORG,))
                return
        raise _keeps_changing(channel_id)

    async def _prepare_org(self) -> None:
        """Create the reserved organization if it does not exist yet."""
        if not await self._directory.has_org(OPERATIONS_ORG):
            org = Org(org_id=OPERATIONS_ORG, name="doorstep", created_at=self._clock.now())
            await self._store.write([Put(document=org)])

    # -- testing and resuming ------------------------------------------------------------------------------

    async def test(self, org_id: UUID, channel_id: UUID, actor: str) -> ChannelTest:
        """Send a test message; the channel shows whether it arrived. Raises Overloaded if tests are sent too often.

        The test is recorded before it is sent, so it counts toward the limits even if the process crashes in between.
        """
        for _ in range(RACES_MAX):
            channels, record = await self.reader.channels_and_tests(org_id)
            channel, now = channel_in(channels, channel_id), self._clock.now()
            test = ChannelTest(channel_id, uuid7(now), now, address_count(channel))
            check_pace(record.tests, test)
            updated = replace(record, tests=remembered(record.tests, test, [one.channel_id for one in channels]))
            entry = self._audit_entry(channel, actor, "channel.test")
            put = Put(document=updated, expected_version=record.version, limit=CONFIG_MAX + 1)
            if await self._store.write([put], entry):
                await self._send(channel, test)
                return test
        raise _keeps_changing(channel_id)

    async def _send(self, channel: Channel, test: ChannelTest) -> None:
        words = channel_test_message(channel.name, test.at, self._console)
        draft = Draft(
            org_id=OPERATIONS_ORG,
            event_type=MESSAGE,
            payload=payload_for(channel.means, words),
            correlation_id=new_correlation_id(),
            endpoint_ids=(channel.channel_id,),
            event_id=test.message_id,
        )
        await self._accepter.accept([draft])

    async def resume(self, org_id: UUID, channel_id: UUID, actor: str) -> None:
        """Enable a disabled channel and send the waiting messages, except stale ones.

        The audit entry is written first, because resuming takes several steps. Even after a crash in between, the audit
        log shows everything that was done.
        """
        channel = await self.reader.channel(org_id, channel_id)
        stale = self._clock.now() - _STALE
        await self._store.write([], self._audit_entry(channel, actor, "channel.resume"))
        await self._endpoints.resume(OPERATIONS_ORG, channel_id, actor, skip_older_than=stale)

    def _audit_entry(self, channel: Channel, actor: str, action: str, reason: str = "") -> AuditEntry:
        now, channel_id = self._clock.now(), channel.channel_id
        return audit_entry(now, channel.org_id, actor, action, channel_id, result=channel.means, reason=reason)


def _keeps_changing(channel_id: UUID) -> Conflict:
    return Conflict(f"channel {channel_id} keeps changing; try again")


# -- forms -------------------------------------------------------------------------------------------------

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}@)(?=.{{1,254}}$){_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*")
"""An e-mail address as in RFC 5321, but without quoted local parts, and without IP addresses in place of domains."""
_SEVERAL = re.compile(r"\s|[,;][A-Za-z0-9]+://")
"""Matches the places in a text where Apprise would start a new URL."""
_ADDRESSES_MAX = 20
_NAME_CHARACTERS_MAX = 100
_URL_CHARACTERS_MAX = 2_000
_POLICY = RetryPolicy((10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0), name="alerts")
_LIMITS = {
    ChannelKind.WEBHOOK: (8, 50.0),
    ChannelKind.SLACK: (1, 1.0),
    ChannelKind.EMAIL: (2, 5.0),
    ChannelKind.APPRISE: (1, 1.0),
}
"""How many messages each kind of channel may send concurrently, and how many per second. Chat services and mail servers
accept messages at these rates. Slack documents a limit of one per second."""
_NO_APPRISE = "Apprise needs the extra `apprise`, which the operator has not installed"
_NO_MAIL = "e-mail needs a mail server; the operator sets it with DOORSTEP_SMTP_URL"


class ChannelForm(Record, frozen=True, kw_only=True):
    name: str
    kind: ChannelKind
    target: str
    """A URL; for e-mail, comma-separated addresses."""
    rules: tuple[Rule, ...] = ()
    endpoint_ids: tuple[UUID, ...] = ()
    recoveries: bool = True


def check(form: ChannelForm, unavailable: Mapping[ChannelKind, str] = MappingProxyType({})) -> None:
    """Raise InvalidInput for the first invalid field. A URL is checked when its endpoint is created."""
    check_name("name", form.name, _NAME_CHARACTERS_MAX)
    if form.kind in unavailable:
        raise InvalidInput("kind", unavailable[form.kind])
    if form.kind is ChannelKind.EMAIL:
        _check_mail(form.target)
    if form.kind is ChannelKind.APPRISE:
        _check_apprise(form.target)


def endpoint_form(form: ChannelForm, owner: UUID, timeout_seconds: float) -> EndpointForm:
    """The endpoint of a channel. For e-mail and Apprise, the target and the owner are stored as encrypted headers."""
    concurrency_max, rate_per_second = _LIMITS[form.kind]
    common = EndpointForm(
        name=form.name,
        event_types=(MESSAGE,),
        policy=_POLICY,
        timeout_seconds=timeout_seconds,
        concurrency_max=concurrency_max,
        rate_per_second=rate_per_second,
    )
    match form.kind:
        case ChannelKind.EMAIL:
            handler, target = EMAIL_HANDLER, ",".join(_addresses(form.target))
        case ChannelKind.APPRISE:
            handler, target = APPRISE_HANDLER, form.target
        case _:
            return replace(common, url=form.target)
    return replace(common, handler=handler, headers={TARGET: target, OWNER: str(owner)})


def shown(form: ChannelForm) -> str:
    """The part of the target that may be shown. The path of a Slack webhook and most of an Apprise URL are credentials,
    so only the start of the URL is shown."""
    match form.kind:
        case ChannelKind.EMAIL:
            return ", ".join(_addresses(form.target))
        case ChannelKind.WEBHOOK:
            return form.target.partition("?")[0]
        case ChannelKind.SLACK:
            parts = urlsplit(form.target)
            return f"{parts.scheme}://{parts.hostname}/…"
    return f"{form.target.partition('://')[0]}://…"


def address_count(channel: Channel) -> int:
    """The number of e-mail addresses of a channel."""
    return len(_addresses(channel.shown)) if channel.means is ChannelKind.EMAIL else 0


def _check_mail(target: str) -> None:
    addresses = _addresses(target)
    wrong = next((one for one in addresses if not _ADDRESS.fullmatch(one)), None)
    if wrong is not None or not 1 <= len(addresses) <= _ADDRESSES_MAX:
        seen = len(addresses) if wrong is None else repr(wrong[:100])
        raise InvalidInput("target", f"must be 1 to {_ADDRESSES_MAX} e-mail addresses, got {seen}")


def _check_apprise(target: str) -> None:
    if "://" not in target or not target.isprintable() or not target.isascii() or len(target) > _URL_CHARACTERS_MAX:
        raise InvalidInput("target", "must be a URL that Apprise supports, such as mailtos://… or tgram://…")
    if _SEVERAL.search(target):
        raise InvalidInput("target", "must be one URL, without spaces; create a channel for each receiver")
    if (scheme := target.partition("://")[0].lower()) in LOCAL_SCHEMES:
        raise InvalidInput("target", f"must be reached over the network; {scheme}:// is for the server's own machine")


def _addresses(target: str) -> list[str]:
    """The addresses without duplicates, so that nobody gets the mail twice."""
    return list(dict.fromkeys(one.strip() for one in target.split(",") if one.strip()))


# -- health ------------------------------------------------------------------------------------------------

T = TypeVar("T")
U = TypeVar("U")

_LOOK_BACK = ((Span.MINUTE, 2 * DAY), (Span.HOUR, 90 * DAY))
"""The time of the last delivery is accurate to the minute for two days, then to the hour until it is 90 days old."""
_EXAMINED_MAX = 20
_AT_ONCE_MAX = 4
TestResult = Literal["waiting", "delivered", "failed"]
_NOT_ITS_FAULT = (Code.SKIPPED, Code.ENDPOINT_DELETED)


class ChannelView(NamedTuple):
    """A channel with its health."""

    channel: Channel
    endpoint: Endpoint
    circuit: Circuit
    last_failed: Delivery | None
    """The message that failed last: a dead letter, or a message that waits for its retry."""
    last_delivered_at: Instant | None
    """Accurate to the minute for two days, then to the hour. For a test message, it is exact."""
    last_test: Delivery | None
    """The message of the newest test. None if there was no test, if its message has not been accepted yet, or if the
    message was already removed by the cleaner."""

    @property
    def test_result(self) -> TestResult | None:
        """The result of the newest test."""
        if self.last_test is None:
            return None
        if self.last_test.state is DeliveryState.DELIVERED:
            return "delivered"
        return "failed" if self.last_test.state in DEAD_STATES else "waiting"


class ChannelReader:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def views(self, org_id: UUID) -> list[ChannelView]:
        """All channels with their health, in the order of creation."""
        return await self._views(*await self.channels_and_tests(org_id))

    async def view(self, org_id: UUID, channel_id: UUID) -> ChannelView:
        channels, tests = await self.channels_and_tests(org_id)
        return (await self._views([channel_in(channels, channel_id)], tests))[0]

    async def channels(self, org_id: UUID) -> list[Channel]:
        return (await self.channels_and_tests(org_id))[0]

    async def channel(self, org_id: UUID, channel_id: UUID) -> Channel:
        return channel_in(await self.channels(org_id), channel_id)

    async def channels_and_tests(self, org_id: UUID) -> tuple[list[Channel], ChannelTests]:
        """The channels, and the record of their tests. The record has version 0 if there were no tests."""
        config = await self._store.find(org_id, AlertConfigs())
        tests = next((one for one in config if isinstance(one, ChannelTests)), ChannelTests(org_id=org_id))
        return [one for one in config if isinstance(one, Channel)], tests

    async def _views(self, channels: Sequence[Channel], tests: ChannelTests) -> list[ChannelView]:
        """The channels with their health. Where the store supports it, all channels are read in one query."""
        ids = [one.channel_id for one in channels]
        endpoints = {one.endpoint_id: one for one in await self._store.get_many(Endpoint, OPERATIONS_ORG, ids)}
        circuits = await circuits_of(self._store, OPERATIONS_ORG, ids)
        delivered_at = await self._last_delivered_at(ids)
        last_tests = await _for_each(ids, lambda one: self._message(tests.last_of(one)))
        levels = await self._store.figures(OPERATIONS_ORG, ids, names=("now_dead", "now_open"))
        failed = await _for_each(ids, lambda one: self._last_failed(one, levels[one]))
        return [
            ChannelView(
                channel=one,
                endpoint=endpoints[key],
                circuit=circuits[key],
                last_failed=failure,
                last_delivered_at=_later(test, delivered_at.get(key)),
                last_test=test,
            )
            for one, key, failure, test in zip(channels, ids, failed, last_tests, strict=True)
        ]

    async def _last_failed(self, channel_id: UUID, now: Figures) -> Delivery | None:
        """The message that failed last. Most channels have no failed message and need no query."""
        found: list[Delivery] = []
        if now.now_dead:
            filters = DeadLetterFilter(endpoint_id=channel_id)
            page = await self._store.page(OPERATIONS_ORG, filters, limit=_EXAMINED_MAX)
            found += (one for one in page.items if one.code not in _NOT_ITS_FAULT)
        if now.now_open:
            waiting = RetryQueueFilter(endpoint_id=channel_id)
            found += (await self._store.page(OPERATIONS_ORG, waiting, limit=_EXAMINED_MAX)).items
        return max(found, key=failed_at, default=None)

    async def _last_delivered_at(self, channel_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        now, found = self._clock.now(), dict[UUID, Instant]()
        for span, back in _LOOK_BACK:
            left = [one for one in channel_ids if one not in found]
            trends = await self._store.series(OPERATIONS_ORG, left, span, now - back, now + SECOND, ("succeeded",))
            times = {key: [point.at for point in trend if point.figures.succeeded] for key, trend in trends.items()}
            found |= {key: at[-1] for key, at in times.items() if at}
        return found

    async def _message(self, test: ChannelTest | None) -> Delivery | None:
        if test is None:
            return None
        messages = await self._store.find(OPERATIONS_ORG, EventDeliveries(event_id=test.message_id))
        return messages[0] if messages else None


def channel_in(channels: Sequence[Channel], channel_id: UUID) -> Channel:
    """The channel with this id. Raises NotFound if there is none."""
    found = next((one for one in channels if one.channel_id == channel_id), None)
    if found is None:
        raise NotFound(f"no channel {channel_id}")
    return found


async def _for_each(items: Sequence[T], read: Callable[[T], Awaitable[U]]) -> list[U]:
    """Read the items concurrently, but only a few at a time, so that an organization with many channels leaves the
    store free for others."""
    semaphore = asyncio.Semaphore(_AT_ONCE_MAX)

    async def read_one(item: T) -> U:
        async with semaphore:
            return await read(item)

    return await asyncio.gather(*map(read_one, items))


def failed_at(delivery: Delivery) -> Instant:
    """When the delivery became a dead letter, or last failed."""
    return delivery.settled_at or delivery.last_attempt_at or 0


def _later(test: Delivery | None, delivered_at: Instant | None) -> Instant | None:
    """When a message was last delivered: `delivered_at`, or the time at which the test message was delivered, if that
    is later."""
    tested_at = test.settled_at if test is not None and test.state is DeliveryState.DELIVERED else None
    return max((at for at in (tested_at, delivered_at) if at is not None), default=None)
