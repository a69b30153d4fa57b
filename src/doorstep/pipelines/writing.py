"""The one place where the turns of entities are written."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.clock import to_iso
from doorstep.model.entity import Entity
from doorstep.path.host import Host
from doorstep.pipelines.moves import Turn
from doorstep.stores.protocol.entities import EntityStore
from doorstep.telemetry.facts import EntityTransition, Telemetry


async def write(host: Host, turn: Turn) -> Entity | None:
    """Keep a turn, if nobody was faster, and see to it that what it sent is soon on its way."""
    written = await keep(host.components.store, host.telemetry, turn)
    if written and turn.posted:
        host.wake()
    return written


async def keep(store: EntityStore, telemetry: Telemetry, turn: Turn) -> Entity | None:
    """The entity as it is kept now, all of its turn in one transaction; None if somebody else was faster."""
    entity, change, posted, line = turn
    if not await store.put_entity(entity, entity.version, change, posted, line):
        return None
    if change is not None:
        telemetry.emit(
            EntityTransition(
                at=to_iso(change.at),
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
    return replace(entity, version=entity.version + 1)
