"""How often channels may be tested: a test sends a message to wherever its owner says.

So it is counted for the organization, whichever channels it has or had, and mails by their addresses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from doorstep.clock import SECOND, Instant
from doorstep.errors import Overloaded
from doorstep.model.channel import ChannelTest

TEST_PAUSE_SECONDS = 5
"""Of one channel."""
TESTS_AN_HOUR_MAX = 60
"""Of an organization: a channel for each of its teams can be set up in an hour, and tried again."""
ADDRESSES_AN_HOUR_MAX = 100
"""That an organization's tests send mail to: five times the most that a channel can have."""
_HOUR = 3_600 * SECOND
_TOO_MANY = (
    f"a channel is tested at most once in {TEST_PAUSE_SECONDS} seconds, and all channels of an organization together "
    f"{TESTS_AN_HOUR_MAX} times an hour, by mail to {ADDRESSES_AN_HOUR_MAX} addresses; "
    "each channel shows what came of its last test"
)


def check_pace(tests: Sequence[ChannelTest], wanted: ChannelTest) -> None:
    """Overloaded, with when it may be made, for a test that is too many after these, the oldest first."""
    pauses = (one.at + TEST_PAUSE_SECONDS * SECOND for one in tests if one.channel_id == wanted.channel_id)
    may_at = max(*pauses, _room_at(_lately(tests, wanted.at), wanted), wanted.at)
    if may_at > wanted.at:
        raise Overloaded(_TOO_MANY, math.ceil((may_at - wanted.at) / SECOND))


def remembered(
    tests: Sequence[ChannelTest], new: ChannelTest, channel_ids: Collection[object]
) -> tuple[ChannelTest, ...]:
    """What is to be kept: the tests of the last hour, and the last one of each channel that is there."""
    last = {one.channel_id: one for one in tests if one.channel_id in channel_ids}
    kept = {*_lately(tests, new.at), *last.values(), new}
    return tuple(sorted(kept, key=lambda one: (one.at, one.message_id)))


def _room_at(lately: list[ChannelTest], wanted: ChannelTest) -> Instant:
    """When enough of them are an hour old; 0 where there is room."""
    tests, addresses, room_at = len(lately), sum(one.addresses for one in lately), 0
    for one in lately:
        if tests < TESTS_AN_HOUR_MAX and addresses + wanted.addresses <= ADDRESSES_AN_HOUR_MAX:
            break
        tests, addresses, room_at = tests - 1, addresses - one.addresses, one.at + _HOUR
    return room_at


def _lately(tests: Sequence[ChannelTest], now: Instant) -> list[ChannelTest]:
    return [one for one in tests if one.at > now - _HOUR]
