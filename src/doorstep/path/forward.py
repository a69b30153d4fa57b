"""From the outbox to the first step: what senders' transactions left there is accepted, in its order, and removed.

Accepting comes first and removing second, each in a transaction of its own. Whoever is killed in between, or does the
same at the same time, accepts an event that is known, which adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds
from doorstep.errors import DoorstepError, InvalidInput, NotFound
from doorstep.model.endpoint import EndpointState
from doorstep.model.posting import Posted, Posting, metadata_of
from doorstep.path.accept import Accepter, Draft
from doorstep.stores.store import Store
from doorstep.telemetry import Notice, Telemetry

_BATCH_MAX = 500
HOLD_SECONDS = 3.0
"""For so long the others leave the outbox to a process that was killed while it forwarded."""

_NEVER = (InvalidInput, NotFound)
"""What says that a posting itself is at fault, and not the moment."""


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

    async def __call__(self) -> int:
        """One batch; returns how many postings have left the outbox, or were set aside in it."""
        postings = await self._first()
        if not postings:
            await self._leave()
            return 0
        if accepted := await self._accept(postings):
            await self._store.clear_outbox([posting.event_id for posting in accepted])
        return len(postings)

    # -- one at a time -------------------------------------------------------------------------------------

    async def _first(self) -> list[Posting]:
        """What is ours to forward; nothing while somebody else does it."""
        if not self._held_until and not await self._store.any_posted():
            return []
        return await self._store.outbox(_BATCH_MAX) if await self._hold() else []

    async def _hold(self) -> bool:
        now = self._clock.now()
        if self._held_until - now < seconds(HOLD_SECONDS / 2):
            until = now + seconds(HOLD_SECONDS)
            self._held_until = until if await self._store.hold_outbox(self._name, now, until) else 0
        return bool(self._held_until)

    async def _leave(self) -> None:
        if self._held_until:
            self._held_until = 0
            await self._store.leave_outbox(self._name)

    # -- accepting -----------------------------------------------------------------------------------------

    async def _accept(self, postings: Sequence[Posting]) -> Sequence[Posting]:
        """Those that were accepted; all of them, but for postings that never can be."""
        try:
            await self._accepter.accept([draft_from(posting) for posting in postings])
            return postings
        except _NEVER:
            return [posting for posting in postings if await self._accepted_alone(posting)]

    async def _accepted_alone(self, posting: Posting) -> bool:
        try:
            await self._accepter.accept([await self._as_things_are(draft_from(posting))])
            return True
        except _NEVER as error:
            await self._set_aside(posting, error)
            return False

    async def _as_things_are(self, draft: Draft) -> Draft:
        """With those of its endpoints told apart that were deleted meanwhile. NotFound for one that never was."""
        named = [await self._store.endpoint(draft.org_id, one) for one in dict.fromkeys(draft.endpoint_ids or ())]
        departed = tuple(one.endpoint_id for one in named if one.state is EndpointState.DELETED)
        return replace(draft, departed=departed)

    async def _set_aside(self, posting: Posting, error: DoorstepError) -> None:
        now = self._clock.now()
        await self._store.set_aside(posting.event_id, str(error), now)
        fields: dict[str, object] = {"event_id": posting.event_id, "org_id": posting.org_id, "reason": str(error)}
        message = "an event in the outbox can never be accepted and was set aside"
        self._telemetry.emit(Notice(at=now, level="error", message=message, fields=fields))


def draft_from(posting: Posting) -> Draft:
    """The draft that its sender gave, with the id that he was told."""
    options = posting.options
    return Draft(
        org_id=posting.org_id,
        event_type=posting.event_type,
        payload=posting.payload,
        correlation_id=options.correlation_id,
        endpoint_ids=options.endpoint_ids,
        deliver_at=options.deliver_at,
        expires_at=options.expires_at,
        metadata=metadata_of(options),
        ordering_key=options.ordering_key,
        posted=Posted(posting.event_id, posting.created_at),
    )
