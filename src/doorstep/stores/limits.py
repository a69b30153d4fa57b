"""Limits and rules that are the same in every store. They cover page sizes, cursors, counts, bytes, rates, text and the
revocation of API keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

from doorstep.clock import SECOND, Instant
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import Submission
from doorstep.model.listing import UNKNOWN_CURSOR
from doorstep.model.org import ApiKey, Role
from doorstep.model.record import created_at

EXAMINED_MAX = 2_000
"""The maximum number of index entries read for one page. When this limit is reached, the page is returned as it is,
even if it is empty."""
RARE_MAX = 500
"""The maximum number of events of a type that counts as rare. Lists that are filtered by such a type start from its
events. Of a more common type, a page of EXAMINED_MAX entries has a match, unless its events are far from the start."""
COUNT_MAX = 10_000
"""The maximum number of index entries read for a count. If there are more, the count is a lower bound."""
WAITING_EXAMINED_MAX = 500
"""The maximum number of waiting deliveries examined to find the oldest one of an endpoint. Those that are due first are
examined first. For 50 endpoints with 500 deliveries each, all scheduled for later, the search takes 24 ms on SQLite,
which is acceptable for endpoint health."""
GROUPS_COUNTED_MAX = 30_000
"""The maximum number of index entries read in total to count the dead letters of all groups on a page."""
DEAD_LETTERS_COUNTED_MAX = 60_000
"""The maximum number of index entries read to count dead letters per hour, divided evenly among all causes and hours.
If an hour has more dead letters than its share, its count is that share, which is high enough to stand out."""
GROUP_DEPTH = 1_000
"""The maximum number of dead letters of each cause that are checked for the requested event type."""
GROUPS_TYPED_MAX = 6_000
"""The maximum number of dead letters, in total for all causes on a page, that are checked for the requested event type.
The event of each dead letter is read several times."""
INBOX_BYTES_MAX = 8 * 2**20
"""The total size of payloads at which a page of the inbox ends. The payload that reaches the limit is included."""
OUTBOX_BYTES_MAX = 8 * 2**20
"""The total size of payloads at which one read of the outbox ends. The payload that reaches the limit is included."""


def count_within(sizes: Iterable[int], bytes_max: int | None) -> int:
    """The number of payloads that fit, taken in order, up to and including the one that reaches `bytes_max`.

    The first payload always fits, even if it is longer than `bytes_max`, so no payload is too long to be delivered.
    """
    count = total = 0
    for size in sizes:
        if bytes_max is not None and total >= bytes_max:
            break
        count, total = count + 1, total + size
    return count


def admit(rate_per_second: float, next_at: Instant, now: Instant, requested: int) -> tuple[int, Instant]:
    """How many of the `requested` claims the rate limit allows at `now`, and the new value of `next_at`."""
    interval = max(1, round(SECOND / rate_per_second))
    burst = max(1, int(rate_per_second / 10))
    start = max(min(next_at, now + burst * interval), now)  # it is later only if the clock was set back
    room = (now + burst * interval - start) // interval
    admitted = max(0, min(requested, room))
    return admitted, start + admitted * interval if admitted else next_at


def key_by_id(key_id: UUID, all_keys: Iterable[ApiKey]) -> ApiKey:
    """The API key with this id among the API keys of an organization; NotFound if there is none."""
    for key in all_keys:
        if key.key_id == key_id:
            return key
    raise NotFound(f"no key {key_id}")


def unique_name(endpoint: Endpoint) -> str | None:
    """The name that no other endpoint of the organization may have. A deleted endpoint gives its name up. The reserved
    organization has an endpoint for each alert channel, and channels of different organizations may share a name."""
    free = endpoint.state is EndpointState.DELETED or endpoint.org_id == OPERATIONS_ORG
    return None if free else endpoint.name


def check_revocable(key: ApiKey, all_keys: Iterable[ApiKey], now: Instant) -> None:
    """Raise Conflict if revoking this admin key would leave no valid admin key that expires at the same time or later.

    A key that expires earlier does not count, because the organization would be locked out when that key expires. So
    revoking a key never makes a lockout come earlier. Stores check this inside the transaction that revokes the key.
    """
    if key.role is not Role.ADMIN or not key.is_valid(now):
        return
    others = (one for one in all_keys if one.key_id != key.key_id and one.role is Role.ADMIN and one.is_valid(now))
    if not any(one.ends_at >= key.ends_at for one in others):
        raise Conflict(
            "the last admin key cannot be revoked, nor one that is valid longer than all others; create another one"
            " first"
        )


# -- cursors -----------------------------------------------------------------------------------------------
# A cursor is the position at which a page of a list ended, encoded as text that only the store interprets.

KEY_MAX = 2**63 - 1
"""The largest integer that fits in a database column."""
ID_MAX = 2**128 - 1
"""The largest id, as a number."""
_CURSOR = re.compile(r"[0-9a-f]{1,32}(?:\.[0-9a-f]{1,32})*")


def write_cursor(*values: int) -> str:
    """Encode the sort values of the last examined row as a cursor."""
    return ".".join(f"{value:x}" for value in values)


def read_cursor(cursor: str | None, *maxima: int) -> tuple[int, ...] | None:
    """The sort values in a cursor; None without a cursor. `maxima` contains the maximum of each sort value."""
    if cursor is None:
        return None
    values = tuple(int(part, 16) for part in cursor.split(".")) if _CURSOR.fullmatch(cursor) else ()
    if len(values) != len(maxima) or any(value > limit for value, limit in zip(values, maxima, strict=True)):
        raise InvalidInput("cursor", UNKNOWN_CURSOR)
    return values


def read_instant_cursor(cursor: str | None) -> tuple[int, UUID] | None:
    """The position in a list that is sorted by an instant, then by id."""
    values = read_cursor(cursor, KEY_MAX, ID_MAX)
    return None if values is None else (values[0], UUID(int=values[1]))


def cursor_time(cursor: str) -> Instant:
    """The time in a cursor of a list that is sorted by id."""
    values = read_cursor(cursor, ID_MAX)
    assert values is not None, "there is a cursor"
    return created_at(UUID(int=values[0]))


# -- text --------------------------------------------------------------------------------------------------
# PostgreSQL does not accept NUL, and UTF-8 cannot encode a lone surrogate. Bytes (payloads, headers, bodies, metadata)
# are stored unchanged and are not checked.

_UNSTORABLE = {0: "\ufffd"} | {code: "\ufffd" for code in range(0xD800, 0xE000)}


def is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """The text with every unstorable character replaced, so that an odd error message from a receiver cannot make
    `settle` fail."""
    return text if is_storable(text) else text.translate(_UNSTORABLE)


def check_storable(field: str, text: str | None) -> None:
    """Raise InvalidInput for text that one of the stores could not store unchanged. All stores reject the same text."""
    if text is not None and not is_storable(text):
        raise InvalidInput(field, "must not contain NUL or lone surrogates; remove them")


def check_submission(submission: Submission) -> None:
    """Raise InvalidInput if one of the texts of a submission cannot be stored."""
    check_storable("event_type", submission.event.event_type)
    check_storable("correlation_id", submission.event.correlation_id)
    check_storable("ordering_key", submission.event.ordering_key)
    check_storable("user_id", submission.event.user_id)
    check_storable("idempotency_key", submission.idempotency_key)


def check_name(field: str, name: str, characters_max: int) -> None:
    """Raise InvalidInput for a name that is empty, too long or not storable."""
    if not 1 <= len(name) <= characters_max:
        raise InvalidInput(field, f"must be 1 to {characters_max} characters, got {len(name)}")
    check_storable(field, name)
