"""Channels with their endpoints: both are there, or neither.

Both are looked at before either is written. Rows are locked in the order of every other verb: what is changed itself,
then the mark of the routing, then the organization.
"""

from __future__ import annotations

from doorstep.model.act import AuditLine
from doorstep.model.channel import Channel
from doorstep.model.endpoint import Endpoint
from doorstep.stores.sql.cold.arrangements import lock_arrangement, put_arrangement, remove_arrangement
from doorstep.stores.sql.cold.orgs import org_key
from doorstep.stores.sql.cold.registry import lock_endpoint, put_endpoint
from doorstep.stores.sql.cold.script import Script


def put_channel(channel: Channel, endpoint: Endpoint, line: AuditLine, most: int) -> Script[bool]:
    if (yield from _versions(channel, endpoint)) != (0, 0):
        return False
    both = (yield from put_endpoint(endpoint, 0, None, None)) and (yield from put_arrangement(channel, 0, line, most))
    assert both, "nobody could come between"
    return True


def remove_channel(channel: Channel, endpoint: Endpoint, line: AuditLine) -> Script[bool]:
    endpoint_version, channel_version = yield from _versions(channel, endpoint)
    if endpoint_version != endpoint.version or not channel_version:
        return False
    both = (yield from put_endpoint(endpoint, endpoint.version, None, None)) and (
        yield from remove_arrangement(channel.org_id, channel.channel_id, line)
    )
    assert both, "nobody could come between"
    return True


def _versions(channel: Channel, endpoint: Endpoint) -> Script[tuple[int, int]]:
    """Those of the endpoint and of the channel; 0 where there is none."""
    reserved, owner = (yield from org_key(endpoint.org_id)), (yield from org_key(channel.org_id))
    _, version, _ = yield from lock_endpoint(reserved, endpoint.endpoint_id)
    return version, (yield from lock_arrangement(owner, channel.channel_id))
