"""How an entity changes when something happens to it. The functions are pure; an `EntityWrite` contains what one
transaction writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import Instant, to_iso
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.delivery import IllegalTransition
from doorstep.model.entity import Entity, EntityChange, Phase
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.pipelines.plan import Plan, Stage, Step

_RUNNING, _DEAD = frozenset({Phase.RUNNING}), frozenset({Phase.DEAD})
_WITH_EVENT = frozenset(Phase) - {Phase.RESTING}
"""The phases in which an entity's event can still change the entity. They include the phases dead and archived, because
an operator may retry the delivery of the event."""


class EntityWrite(NamedTuple):
    """An entity's next version, with everything that is written in the same transaction."""

    entity: Entity
    change: EntityChange | None
    """The entity's history entry; None if the status stays the same."""
    messages: tuple[OutboxMessage, ...] = ()
    audit_entry: AuditEntry | None = None


class StageFailure(NamedTuple):
    """Why a stage failed: a sentence for people, and the technical details."""

    reason: str
    category: str | None
    code: str | None
    attempt: int

    def error(self, event_id: UUID | None, at: Instant) -> dict[str, Any]:
        """The value of `metadata.error`. Tracebacks are in the attempt log of the event."""
        return {
            "category": "pipeline_failed",
            "reason": self.reason,
            "retry_count": max(0, self.attempt - 1),
            "kind": self.category,
            "code": self.code,
            "attempt_count": self.attempt,
            "event_id": None if event_id is None else str(event_id),
            "at": to_iso(at),
        }


# -- changes by the engine ----------------------------------------------------------------------------------


def started(
    plan: Plan,
    org_id: UUID,
    entity_id: str,
    data: dict[str, Any],
    now: Instant,
    event_id: UUID,
    arrival: UUID | None = None,
) -> EntityWrite:
    """A new entity, with the event of its first stage. `arrival` is the event that creates the entity, if any."""
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
    return EntityWrite(entity, change, (_stage_message(plan, entity, plan.first_stage, now),))


def begun(plan: Plan, entity: Entity, stage: str, now: Instant, attempt: int) -> EntityWrite:
    """An attempt of a stage begins. This is written even if the status stays the same, so that earlier attempts become
    stale.

    The caller has checked that the event is the entity's current event. The status is not checked: the event may have
    been sent under an earlier declaration, with other names or another order of statuses.
    """
    if entity.status == stage:
        return EntityWrite(entity, None)
    return _by_phase(plan, entity, _WITH_EVENT, stage, now, f"attempt {attempt}")


def finished(
    plan: Plan, entity: Entity, stage: str, data: Mapping[str, Any] | None, now: Instant, event_id: UUID
) -> EntityWrite:
    """The stage succeeded: move to the next step, and send that step's event in the same transaction."""
    done = _without_error(entity)
    if data is not None:
        done = replace(done, data=dict(data))
    return _to_step(plan, done, plan.after(stage), now, f"{stage} done", entity.event_id, event_id)


def failed(plan: Plan, entity: Entity, stage: Stage, failure: StageFailure, now: Instant) -> EntityWrite:
    """The stage failed. The policy of its delivery decides whether it is retried."""
    return _to(plan, _with_error(entity, failure, now), stage.failed, now, failure.reason, entity.event_id)


def dead_lettered(plan: Plan, entity: Entity, failure: StageFailure, now: Instant) -> EntityWrite:
    """The delivery of the stage became a dead letter. The entity keeps its event, so the stage continues if an operator
    retries the delivery."""
    return _by_phase(plan, _with_error(entity, failure, now), _RUNNING, plan.dead, now, failure.reason)


def archived(plan: Plan, entity: Entity, now: Instant) -> EntityWrite:
    return _by_phase(plan, entity, _DEAD, plan.archived, now, "stale")


# -- changes by operators -------------------------------------------------------------------------------------


def approved(plan: Plan, entity: Entity, actor: str, now: Instant, event_id: UUID, name: str = "") -> EntityWrite:
    """The entity passes its gate. `name` is the name of the actor, if the actor is a key."""
    following = plan.after(entity.status)
    write = _to_step(plan, entity, following, now, f"approved by {name or actor}", None, event_id)
    return _audited(write, "entity.approve", actor, now)


def rejected(plan: Plan, entity: Entity, actor: str, reason: str, now: Instant, name: str = "") -> EntityWrite:
    sentence = f"rejected by {name or actor}" + (f": {reason}" if reason else "")
    failure = StageFailure(sentence, "permanent", "REJECTED", 0)
    write = _to(plan, _with_error(entity, failure, now), plan.dead, now, sentence, None)
    return _audited(write, "entity.reject", actor, now, reason)


def retried(
    plan: Plan, entity: Entity, actor: str, reason: str, now: Instant, event_id: UUID, name: str = ""
) -> EntityWrite:
    """Restart the entity with a new event. Attempts of the old event no longer have an effect."""
    sentence = f"retried by {name or actor}" + (f": {reason}" if reason else "")
    again = replace(_without_error(entity), event_id=event_id)
    write = _to(plan, again, plan.first, now, sentence, event_id)
    messages = (_stage_message(plan, write.entity, plan.first_stage, now),)
    return _audited(write._replace(messages=messages), "entity.retry", actor, now, reason)


def deleted(entity: Entity, actor: str, reason: str, now: Instant) -> AuditEntry:
    """The audit entry of a deletion, which is all that remains of the entity."""
    return _audit_entry(entity, "entity.delete", actor, now, reason)


def as_seen(plan: Plan, entity: Entity, dead_before: Instant) -> Entity:
    """The entity as it is shown. If it has been dead for a long time, it is shown as archived, even if the reconciler
    has not run yet."""
    if entity.phase is Phase.DEAD and entity.changed_at < dead_before:
        return replace(entity, status=plan.archived, phase=Phase.ARCHIVED)
    return entity


# -- the parts of a write ----------------------------------------------------------------------------------


def _to_step(
    plan: Plan, entity: Entity, step: Step | None, now: Instant, reason: str, cause: UUID | None, event_id: UUID
) -> EntityWrite:
    """Move the entity to the next step. A stage has its own event; a gate and the last status have none."""
    if not isinstance(step, Stage):
        status = step.name if step else plan.last
        return _to(plan, replace(entity, event_id=None), status, now, reason, cause)
    write = _to(plan, replace(entity, event_id=event_id), step.name, now, reason, cause)
    return write._replace(messages=(_stage_message(plan, write.entity, step, now),))


def _to(plan: Plan, entity: Entity, status: str, now: Instant, reason: str, cause: UUID | None) -> EntityWrite:
    plan.check(entity.status, status)
    return _changed(plan, entity, status, now, reason, cause)


def _by_phase(
    plan: Plan, entity: Entity, phases: frozenset[Phase], status: str, now: Instant, reason: str
) -> EntityWrite:
    """Change the status if the entity is in one of these phases. The stored phase is checked instead of the status,
    because the status may have had another name or meaning under an earlier declaration."""
    if entity.phase not in phases:
        raise IllegalTransition(f"a {plan.name} that is {entity.phase} ({entity.status}) cannot become {status}")
    return _changed(plan, entity, status, now, reason, entity.event_id)


def _changed(plan: Plan, entity: Entity, status: str, now: Instant, reason: str, cause: UUID | None) -> EntityWrite:
    change = EntityChange(now, entity.status, status, reason, cause)
    return EntityWrite(replace(entity, status=status, phase=plan.phases[status], changed_at=now), change)


def _stage_message(plan: Plan, entity: Entity, stage: Stage, now: Instant) -> OutboxMessage:
    """The event of a stage. It contains only the entity's id, which is also its correlation id."""
    assert entity.event_id is not None, "an entity has an event id before its stage's event is sent"
    return OutboxMessage(
        event_id=entity.event_id,
        org_id=entity.org_id,
        event_type=plan.event_type(stage.name),
        payload=msgspec.json.encode({f"{plan.name}_id": entity.entity_id}),
        created_at=now,
        options=OutboxOptions(correlation_id=entity.entity_id),
    )


def _with_error(entity: Entity, failure: StageFailure, now: Instant) -> Entity:
    metadata = entity.metadata | {"error": failure.error(entity.event_id, now)}
    return replace(entity, error_reason=failure.reason, metadata=metadata)


def _without_error(entity: Entity) -> Entity:
    metadata = {name: value for name, value in entity.metadata.items() if name != "error"}
    return replace(entity, error_reason=None, metadata=metadata)


def _audited(write: EntityWrite, action: str, actor: str, now: Instant, reason: str = "") -> EntityWrite:
    return write._replace(audit_entry=_audit_entry(write.entity, action, actor, now, reason))


def _audit_entry(entity: Entity, action: str, actor: str, now: Instant, reason: str) -> AuditEntry:
    subjects = (entity.pipeline, entity.entity_id)
    return audit_entry(now, entity.org_id, actor, action, *subjects, result=entity.status, reason=reason)
