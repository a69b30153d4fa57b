"""From the outbox to the first step: what senders' transactions left there is accepted, in its order, and removed.

Accepting comes first and removing second, each in a transaction of its own. Whoever is killed in between, or does the
same at the same time, accepts an event that is known, which adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.errors import DoorstepError, InvalidInput, Overloaded, StoreError
from doorstep.model.endpoint import EndpointState
from doorstep.model.posting import Posting, said_in
from doorstep.path.accept import Accepter, Draft
from doorstep.stores.store import Store, Task
from doorstep.stores.text import storable
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.scrubbing import said_by

_BATCH_MAX = 500
HOLD_SECONDS = 3.0
"""For so long the others leave the outbox to a process that was killed while it forwarded."""

_PASSING = (StoreError, Overloaded, OSError, MemoryError)
"""What says that the moment is at fault. Anything else is the posting's own: it would fail for ever, and hold up all."""
_TRIES = 2
"""An endpoint may be deleted between the look at it and the acceptance."""


class Forward:
    """Takes the first of what is posted, as a batch; one by one where the batch has something unacceptable in it.

    Of several processes one does it, as long as there is something: the others would do the same work in vain.
    """

    def __init__(self, store: Store, accepter: Accepter, clock: Clock, telemetry: Telemetry, name: str) -> None:
        self._store = store
        self._accepter = accepter
        self._clock = clock
        self._telemetry = telemetry
        self._name = name
        self._held_until: Instant = 0
        self.held_at: Instant = 0
        """When it last had the right to forward."""
        self._batch_max = _BATCH_MAX

    async def __call__(self) -> int:
        """One batch; returns how many postings have left the outbox, or were set aside in it."""
        try:
            return await self._forward()
        except Exception:
            with suppress(DoorstepError):
                await self.leave()  # somebody else may fare better
            raise

    async def _forward(self) -> int:
        postings = await self._first()
        if not postings:
            await self.leave()
            return 0
        if accepted := await self._accept(postings):
            await self._store.clear_outbox([posting.event_id for posting in accepted])
        return len(postings)

    async def leave(self) -> None:
        """Let the others forward, if it has been us."""
        if self._held_until:
            self._held_until = 0
            await self._store.leave(Task.OUTBOX, self._name)

    # -- one at a time -------------------------------------------------------------------------------------

    async def _first(self) -> list[Posting]:
        """What is ours to forward; nothing while somebody else does it."""
        if not self._held_until and not await self._store.any_posted():
            return []
        return await self._store.outbox(self._batch_max) if await self._hold() else []

    async def _hold(self) -> bool:
        now = self._clock.now()
        if self._held_until - now < seconds(HOLD_SECONDS / 2):
            until = now + seconds(HOLD_SECONDS)
            self._held_until = until if await self._store.hold(Task.OUTBOX, self._name, now, until) else 0
        if self._held_until:
            self.held_at = now
        return bool(self._held_until)

    # -- accepting -----------------------------------------------------------------------------------------

    async def _accept(self, postings: Sequence[Posting]) -> Sequence[Posting]:
        """Those that were accepted; all of them, but for postings that never can be."""
        try:
            await self._accept_together(postings)
            return postings
        except Overloaded:
            self._batch_max = max(1, self._batch_max // 2)
            raise
        except _PASSING:
            raise
        except Exception:  # noqa: BLE001  one of them is at fault: which one, and why, is seen when it is alone
            return [posting for posting in postings if await self._accepted_alone(posting)]

    async def _accept_together(self, postings: Sequence[Posting]) -> None:
        for posting in postings:
            _check_readable(posting)
        await self._accepter.accept([draft_from(posting) for posting in postings])
        self._batch_max = min(2 * self._batch_max, _BATCH_MAX)

    async def _accepted_alone(self, posting: Posting) -> bool:
        for tries_left in reversed(range(_TRIES)):
            try:
                _check_readable(posting)
                await self._accepter.accept([await self._as_things_are(draft_from(posting))])
                return True
            except _PASSING:
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, the others must not wait for it
                if not tries_left:
                    await self._set_aside(posting, error)
        return False

    async def _as_things_are(self, draft: Draft) -> Draft:
        """With those of its endpoints told apart that were deleted meanwhile. NotFound for one that never was."""
        named = [await self._store.endpoint(draft.org_id, one) for one in dict.fromkeys(draft.endpoint_ids or ())]
        departed = tuple(one.endpoint_id for one in named if one.state is EndpointState.DELETED)
        return replace(draft, departed=departed)

    async def _set_aside(self, posting: Posting, error: Exception) -> None:
        now = self._clock.now()
        reason = str(error) if isinstance(error, DoorstepError) else said_by(error)
        await self._store.set_aside(posting.event_id, storable(reason), now)
        fields: dict[str, object] = {"event_id": posting.event_id, "org_id": posting.org_id, "reason": reason}
        fields |= {"correlation_id": posting.options.correlation_id}
        message = "an event in the outbox can never be accepted and was set aside"
        self._telemetry.emit(Notice(at=to_iso(now), level="error", message=message, fields=fields))


def _check_readable(posting: Posting) -> None:
    if posting.flaw is not None:
        raise InvalidInput("options", posting.flaw)


def draft_from(posting: Posting) -> Draft:
    """The draft that its sender gave, with the id that he was told."""
    return Draft(endpoint_ids=posting.options.endpoint_ids, **said_in(posting))
