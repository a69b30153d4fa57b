"""What the shop of the demo has before anything happens: its endpoints, its keys, and where its people are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.demo.samples import ALERTS_PATH, SAMPLES, Sample
from doorstep.model.channel import ChannelKind
from doorstep.model.org import Role
from doorstep.path.channel_form import ChannelForm

_ADMIN, _OPERATOR = "lena", "marco"
_KEYS = {
    _ADMIN: Role.ADMIN,
    _OPERATOR: Role.OPERATOR,
    "checkout": Role.PUBLISHER,
    "bookkeeping": Role.VIEWER,
}
_CHANNELS = {"on-call": ChannelKind.WEBHOOK, "#shop": ChannelKind.SLACK}


class Staff(NamedTuple):
    """Those who do something, as the audit log knows them: by the visible beginnings of their keys."""

    admin: str
    operator: str


async def furnish(doorstep: Doorstep, url_of: Callable[[Sample], str], receivers: str) -> None:
    """What an earlier demo left is led to where the receivers are now."""
    admin = (await staff_of(doorstep)).admin
    for sample in SAMPLES:
        await _endpoint(doorstep, sample, url_of(sample), admin)
    await _channels(doorstep, receivers, admin)


async def staff_of(doorstep: Doorstep) -> Staff:
    """Whoever has no key that is good gets one."""
    now, known = doorstep.clock.now(), await doorstep.components.keys.keys(DEFAULT_ORG)
    prefixes = {key.name: key.prefix for key in known if key.is_valid(now)}
    for name, role in _KEYS.items():
        if name not in prefixes:
            record, _ = await doorstep.components.keys.create(DEFAULT_ORG, name, role, prefixes.get(_ADMIN, "program"))
            prefixes[name] = record.prefix
    return Staff(prefixes[_ADMIN], prefixes[_OPERATOR])


async def _endpoint(doorstep: Doorstep, sample: Sample, url: str, admin: str) -> None:
    fields = sample.fields(url)
    for endpoint in await doorstep.endpoints():
        if endpoint.name == sample.name:
            await doorstep.components.endpoints.update(DEFAULT_ORG, endpoint.endpoint_id, fields, admin)
            return
    await doorstep.create_endpoint(**fields, actor=admin)


async def _channels(doorstep: Doorstep, receivers: str, admin: str) -> None:
    """Where a channel leads cannot be changed: an old one makes room for a new one."""
    desk = doorstep.components.channels
    for channel in await desk.reading.channels(DEFAULT_ORG):
        if channel.name in _CHANNELS:
            await desk.delete(DEFAULT_ORG, channel.channel_id, admin)
    for name, kind in _CHANNELS.items():
        target = f"{receivers}{ALERTS_PATH}/{kind}"
        await desk.create(ChannelForm(name=name, kind=kind, target=target), DEFAULT_ORG, admin)
