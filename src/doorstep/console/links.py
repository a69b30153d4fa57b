"""Links that sign somebody in, once: printed at the start, or asked for with `doorstep console`.

They are known only to the process that made them, and only for a while.
"""

from __future__ import annotations

import secrets

from doorstep.clock import SECOND, Clock, Instant
from doorstep.model.org import ApiKey

LASTS: Instant = 30 * 60 * SECOND
_LIVING_MAX = 1_000


class SignInLinks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._living: dict[str, tuple[bytes, Instant]] = {}

    def new(self, key: ApiKey) -> str:
        """The path of a link that signs in as this key."""
        self._forget_old()
        token = secrets.token_urlsafe(24)
        self._living[token] = (key.digest, self._clock.now() + LASTS)
        return f"/console/sign-in/{token}"

    def stands_for(self, token: str) -> bytes | None:
        """The hash of its key; None for one that was used, is too old, or never was."""
        digest, until = self._living.get(token, (None, 0))
        return digest if until > self._clock.now() else None

    def spend(self, token: str) -> bool:
        """From now on it opens nothing; False if it did not before."""
        living = self.stands_for(token) is not None
        self._living.pop(token, None)
        return living

    def _forget_old(self) -> None:
        now = self._clock.now()
        self._living = {token: one for token, one in self._living.items() if one[1] > now}
        while len(self._living) >= _LIVING_MAX:
            del self._living[next(iter(self._living))]
