"""What the shop of the demo has before anything happens: its endpoints, its keys, and where its people are told."""

from __future__ import annotations

from collections.abc import Callable

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.demo.samples import ALERTS_PATH, SAMPLES, Sample
from doorstep.model.channel import ChannelKind
from doorstep.model.org import Role
from doorstep.path.channel_form import ChannelForm

ADMIN = "lena"
_KEYS = {"checkout": Role.PUBLISHER, "marco": Role.OPERATOR, "bookkeeping": Role.VIEWER}
_CHANNELS = {"on-call": ChannelKind.WEBHOOK, "#shop": ChannelKind.SLACK}


async def furnish(doorstep: Doorstep, url_of: Callable[[Sample], str], receivers: str) -> None:
    """What an earlier demo left is led to where the receivers are now."""
    for sample in SAMPLES:
        await _endpoint(doorstep, sample, url_of(sample))
    await _channels(doorstep, receivers)
    known = {key.name for key in await doorstep.keyring.keys(DEFAULT_ORG)}
    for name in _KEYS.keys() - known:
        await doorstep.keyring.create(DEFAULT_ORG, name, _KEYS[name], ADMIN)


async def _endpoint(doorstep: Doorstep, sample: Sample, url: str) -> None:
    fields = sample.fields(url)
    for endpoint in await doorstep.endpoints():
        if endpoint.name == sample.name:
            await doorstep.registrar.change(DEFAULT_ORG, endpoint.endpoint_id, fields, ADMIN)
            return
    await doorstep.create_endpoint(**fields, actor=ADMIN)


async def _channels(doorstep: Doorstep, receivers: str) -> None:
    """Where a channel leads cannot be changed: an old one makes room for a new one."""
    desk = doorstep.alerting.channels
    for channel in await desk.reading.channels(DEFAULT_ORG):
        if channel.name in _CHANNELS:
            await desk.delete(DEFAULT_ORG, channel.channel_id, ADMIN)
    for name, kind in _CHANNELS.items():
        target = f"{receivers}{ALERTS_PATH}/{kind}"
        await desk.create(ChannelForm(name=name, kind=kind, target=target), DEFAULT_ORG, ADMIN)
