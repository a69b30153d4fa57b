"""What becomes of an entity when something happens to it: data in, data out. A `Turn` is written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant, to_iso
from doorstep.model.action import AuditEntry
from doorstep.model.delivery import IllegalTransition
from doorstep.model.entity import Entity, EntityChange, Phase
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.pipelines.plan import Plan, Stage, Step

_RUNNING, _DEAD = frozenset({Phase.RUNNING}), frozenset({Phase.DEAD})
_CARRIED = frozenset(Phase) - {Phase.RESTING}
"""What has an event may still be carried on by it: a dead or archived one, too, if an operator retries its delivery."""


class Turn(NamedTuple):
    """An entity as it is to be, computed from a version of it, with everything that goes with that."""

    entity: Entity
    change: EntityChange | None
    """Its line of history; none where the status stays."""
    posted: tuple[OutboxMessage, ...] = ()
    line: AuditEntry | None = None


class Trouble(NamedTuple):
    """Why a stage failed: a sentence for people, and the technical side."""

    reason: str
    category: str | None
    code: str | None
    attempt: int

    def error(self, event_id: UUID | None, at: Instant) -> dict[str, Any]:
        """As it stands in `metadata.error`. Tracebacks are in the attempt log of the event."""
        return {
            "category": self.category,
            "code": self.code,
            "attempt_count": self.attempt,
            "event_id": None if event_id is None else str(event_id),
            "at": to_iso(at),
        }


# -- what the machine does ---------------------------------------------------------------------------------


def started(
    plan: Plan,
    org_id: UUID,
    entity_id: str,
    data: dict[str, Any],
    now: Instant,
    event_id: UUID,
    arrival: UUID | None = None,
) -> Turn:
    """A new entity, with the event of its first stage. `arrival` is the event that brought it, where one did."""
    entity = Entity(
        entity_id=entity_id,
        org_id=org_id,
        pipeline=plan.name,
        status=plan.first,
        phase=plan.phases[plan.first],
        data=data,
        event_id=event_id,
        created_at=now,
        changed_at=now,
    )
    change = EntityChange(now, None, plan.first, "started", arrival or event_id)
    return Turn(entity, change, (_posting(plan, entity, plan.begins_with, now),))


def begun(plan: Plan, entity: Entity, stage: str, now: Instant, attempt: int) -> Turn:
    """A try of its stage begins. Written even where the status stays: what an earlier try does from now on is late.

    That the event is its own is all it needs: it may have set out under another declaration, whose statuses had other
    names or another order.
    """
    if entity.status == stage:
        return Turn(entity, None)
    return _by_phase(plan, entity, _CARRIED, stage, now, f"attempt {attempt}")


def finished(
    plan: Plan, entity: Entity, stage: str, data: Mapping[str, Any] | None, now: Instant, event_id: UUID
) -> Turn:
    """Its stage succeeded: on to the next step, whose event goes out in the same transaction."""
    done = _without_error(entity)
    if data is not None:
        done = replace(done, data=dict(data))
    return _onward(plan, done, plan.after(stage), now, f"{stage} done", entity.event_id, event_id)


def failed(plan: Plan, entity: Entity, stage: Stage, trouble: Trouble, now: Instant) -> Turn:
    """Its stage failed; whether there is another try is for the delivery's policy to say."""
    return _to(plan, _with_error(entity, trouble, now), stage.failed, now, trouble.reason, entity.event_id)


def given_up(plan: Plan, entity: Entity, trouble: Trouble, now: Instant) -> Turn:
    """Its delivery is dead. The event stays its own: should an operator retry that delivery, the stage goes on."""
    return _by_phase(plan, _with_error(entity, trouble, now), _RUNNING, plan.dead, now, trouble.reason)


def archived(plan: Plan, entity: Entity, now: Instant) -> Turn:
    return _by_phase(plan, entity, _DEAD, plan.archived, now, "untouched")


# -- what people do ----------------------------------------------------------------------------------------


def approved(plan: Plan, entity: Entity, actor: str, now: Instant, event_id: UUID) -> Turn:
    """Through its gate."""
    following = plan.after(entity.status)
    turn = _onward(plan, entity, following, now, f"approved by {actor}", None, event_id)
    return _audited(turn, "entity.approve", actor, now)


def rejected(plan: Plan, entity: Entity, actor: str, reason: str, now: Instant) -> Turn:
    words = f"rejected by {actor}: {reason}" if reason else f"rejected by {actor}"
    trouble = Trouble(words, "permanent", "REJECTED", 0)
    turn = _to(plan, _with_error(entity, trouble, now), plan.dead, now, words, None)
    return _audited(turn, "entity.reject", actor, now, reason)


def retried(plan: Plan, entity: Entity, actor: str, reason: str, now: Instant, event_id: UUID) -> Turn:
    """Back to the start with a new event; whatever the old one's stage still does changes nothing any more."""
    words = f"retried by {actor}: {reason}" if reason else f"retried by {actor}"
    again = replace(_without_error(entity), event_id=event_id)
    turn = _to(plan, again, plan.first, now, words, event_id)
    posted = (_posting(plan, turn.entity, plan.begins_with, now),)
    return _audited(turn._replace(posted=posted), "entity.retry", actor, now, reason)


def deleted(entity: Entity, actor: str, reason: str, now: Instant) -> AuditEntry:
    """What is left of it."""
    return _line(entity, "entity.delete", actor, now, reason)


def as_seen(plan: Plan, entity: Entity, dead_before: Instant) -> Entity:
    """The entity as people see it: an untouched dead one is archived, even if the keeper has not come by."""
    if entity.phase is Phase.DEAD and entity.changed_at < dead_before:
        return replace(entity, status=plan.archived, phase=Phase.ARCHIVED)
    return entity


# -- the parts of a turn -----------------------------------------------------------------------------------


def _onward(
    plan: Plan, entity: Entity, step: Step | None, now: Instant, reason: str, cause: UUID | None, event_id: UUID
) -> Turn:
    """To the next step: a stage has an event of its own; at a gate and at the end there is none."""
    if not isinstance(step, Stage):
        status = step.name if step else plan.last
        return _to(plan, replace(entity, event_id=None), status, now, reason, cause)
    turn = _to(plan, replace(entity, event_id=event_id), step.name, now, reason, cause)
    return turn._replace(posted=(_posting(plan, turn.entity, step, now),))


def _to(plan: Plan, entity: Entity, status: str, now: Instant, reason: str, cause: UUID | None) -> Turn:
    plan.check(entity.status, status)
    return _moved(plan, entity, status, now, reason, cause)


def _by_phase(plan: Plan, entity: Entity, phases: frozenset[Phase], status: str, now: Instant, reason: str) -> Turn:
    """What the machine does goes by the phase that is kept with an entity: an earlier declaration may have called its
    status something else, or meant something else by it."""
    if entity.phase not in phases:
        raise IllegalTransition(f"a {plan.name} that is {entity.phase} ({entity.status}) cannot become {status}")
    return _moved(plan, entity, status, now, reason, entity.event_id)


def _moved(plan: Plan, entity: Entity, status: str, now: Instant, reason: str, cause: UUID | None) -> Turn:
    change = EntityChange(now, entity.status, status, reason, cause)
    return Turn(replace(entity, status=status, phase=plan.phases[status], changed_at=now), change)


def _posting(plan: Plan, entity: Entity, stage: Stage, now: Instant) -> OutboxMessage:
    """The event of a stage names the entity and nothing else; its correlation id is the entity's own."""
    assert entity.event_id is not None, "whoever sends a stage's event has given it its id"
    return OutboxMessage(
        event_id=entity.event_id,
        org_id=entity.org_id,
        event_type=plan.event_type(stage.name),
        payload=msgspec.json.encode({f"{plan.name}_id": entity.entity_id}),
        created_at=now,
        options=OutboxOptions(correlation_id=entity.entity_id),
    )


def _with_error(entity: Entity, trouble: Trouble, now: Instant) -> Entity:
    metadata = entity.metadata | {"error": trouble.error(entity.event_id, now)}
    return replace(entity, error_reason=trouble.reason, metadata=metadata)


def _without_error(entity: Entity) -> Entity:
    metadata = {name: value for name, value in entity.metadata.items() if name != "error"}
    return replace(entity, error_reason=None, metadata=metadata)


def _audited(turn: Turn, action: str, actor: str, now: Instant, reason: str = "") -> Turn:
    return turn._replace(line=_line(turn.entity, action, actor, now, reason))


def _line(entity: Entity, action: str, actor: str, now: Instant, reason: str) -> AuditEntry:
    return AuditEntry(
        at=now,
        org_id=entity.org_id,
        actor=actor,
        action=action,
        subjects=(entity.pipeline, entity.entity_id),
        result=entity.status,
        reason=reason,
    )
