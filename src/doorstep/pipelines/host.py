"""What a pipeline needs of the Doorstep that it was added to, and the one place where its turns are written."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar
from uuid import UUID

from doorstep.clock import Clock
from doorstep.path.tuning import Tuning
from doorstep.pipelines.moves import Turn
from doorstep.stores.store import Store
from doorstep.telemetry import EntityTransition, Telemetry

T = TypeVar("T")


class Host(Protocol):
    """A Doorstep. Asked anew each time: its store is another one in a process that was forked."""

    store: Store
    clock: Clock
    tuning: Tuning
    telemetry: Telemetry

    def wake(self) -> None:
        """There may be something in the outbox."""

    def send(self, event_type: str, payload: object, *, connection: Any, org_id: UUID) -> Any:
        """Post an event in the transaction that `connection` is in."""

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something on the open store, in the event loop that it was opened in."""

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same for who has no event loop."""


async def write(host: Host, turn: Turn) -> bool:
    """Keep a turn, if nobody was faster, and see to it that what it sent is soon on its way."""
    written = await keep(host.store, host.telemetry, turn)
    if written and turn.posted:
        host.wake()
    return written


async def keep(store: Store, telemetry: Telemetry, turn: Turn) -> bool:
    """Keep a turn, if nobody was faster: all of it in one transaction."""
    entity, change, posted, line = turn
    if not await store.put_entity(entity, entity.version, change, posted, line):
        return False
    if change is not None:
        telemetry.emit(
            EntityTransition(
                at=change.at,
                pipeline=entity.pipeline,
                entity_id=entity.entity_id,
                old_status=change.old_status,
                new_status=change.new_status,
                reason=change.reason,
                event_id=change.event_id,
                correlation_id=entity.entity_id,
                org_id=entity.org_id,
            )
        )
    return True
