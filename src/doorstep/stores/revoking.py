"""Which keys may be revoked: the same in every store, judged inside the transaction that revokes."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.org import ApiKey, Role


def named_key(key_id: UUID, all_keys: Iterable[ApiKey]) -> ApiKey:
    """The one with this id among those of an organization; NotFound otherwise."""
    for key in all_keys:
        if key.key_id == key_id:
            return key
    raise NotFound(f"no key {key_id}")


def check_revocable(key: ApiKey, all_keys: Iterable[ApiKey], now: Instant) -> None:
    """Conflict unless another valid admin key lasts at least as long as this one.

    One that ends earlier does not count: the organization would lock itself out by the mere passing of time. So
    revoking never brings nearer the day on which nobody can make keys any more.
    """
    if key.role is not Role.ADMIN or not key.is_valid(now):
        return
    others = (one for one in all_keys if one.key_id != key.key_id and one.role is Role.ADMIN and one.is_valid(now))
    if not any(one.ends_at >= key.ends_at for one in others):
        raise Conflict(
            "the last admin key cannot be revoked, nor one that is valid longer than all others; create another one first"
        )
