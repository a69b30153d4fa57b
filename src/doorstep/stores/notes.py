"""The texts that stores write for people: history notes, audit entries, reasons. All stores use the same wording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.claim import Settlement
from doorstep.model.delivery import EDITED, DeliveryState
from doorstep.model.outbox import OutboxMessage

ACCEPTED = "accepted"
ARCHIVED = "archived: no action taken"


def too_many_endpoints(living_max: int) -> str:
    return f"an organization has at most {living_max} endpoints; delete some first, or raise endpoints_max"


def too_many_alert_configs(configs_max: int) -> str:
    return f"an organization has at most {configs_max} alert rules, channels and silences; remove some first"


def claimed(worker: str) -> str:
    return f"claimed by {worker}"


def released(worker: str) -> str:
    return f"released untried by {worker}"


def settled(settlement: Settlement) -> str:
    """For example `delivered`, `dead: NOT_FOUND` or `failed: TIMEOUT, retry 1 of 3`."""
    if settlement.state is DeliveryState.DELIVERED:
        return "delivered"
    code = settlement.outcome.code
    if settlement.state is DeliveryState.DEAD:
        return dead(code)
    return f"failed: {code}, retry {settlement.claim.retry_attempts + 1} of {settlement.retries_max}"


def dead(code: str | None) -> str:
    return f"dead: {code}"


def acted(action: Action) -> str:
    """For example `retried by ops: reason`, or `retried by ops` if no reason was given."""
    verb = {ActionKind.SKIP: "skipped", ActionKind.CANCEL: "cancelled", ActionKind.RETRY: "retried"}.get(
        action.kind, f"{action.kind}d"
    )
    done = f"{verb} by {action.actor}" if action.payload is None else f"{EDITED}{action.actor}, {verb}"
    return f"{done}: {action.reason}" if action.reason else done


def action_entry(action: Action, result: ActionResult) -> AuditEntry:
    """The audit entry of an action, with a result such as `3 done, 1 refused`."""
    name, subjects = str(action.kind), tuple(map(str, dict.fromkeys(action.delivery_ids)))
    if action.audited_as is not None:
        name, subjects = action.audited_as[0], (action.audited_as[1],)
    return AuditEntry(
        at=action.at,
        org_id=action.org_id,
        actor=action.actor,
        action=name,
        subjects=subjects,
        result=f"{len(result.done)} done, {len(result.refused)} refused",
        reason=action.reason,
    )


def outbox_entries(
    entry: AuditEntry, messages: Sequence[OutboxMessage], known_orgs: Collection[UUID]
) -> list[AuditEntry]:
    """A copy of `entry` for each organization that has messages. Messages of unknown organizations are listed in the
    copy for the organization of `entry`."""
    subjects: dict[UUID, list[str]] = defaultdict(list)
    for message in messages:
        subjects[message.org_id if message.org_id in known_orgs else entry.org_id].append(str(message.event_id))
    return [
        replace(entry, org_id=org_id, subjects=tuple(ids), result=f"{len(ids)} done")
        for org_id, ids in subjects.items()
    ]


def no_entity(pipeline: str, entity_id: str) -> str:
    return f"no {pipeline} {entity_id}"


def deleted(actor: str) -> str:
    """The history note of a delivery that was cancelled because its event was deleted."""
    return f"event deleted by {actor}"


def deletion_entry(
    org_id: UUID, event_id: UUID, actor: str, at: Instant, cancelled: int, dead_letters: int, reason: str
) -> AuditEntry:
    return AuditEntry(
        at=at,
        org_id=org_id,
        actor=actor,
        action="event.delete",
        subjects=(str(event_id),),
        result=f"{cancelled} cancelled, {dead_letters} dead letters deleted",
        reason=reason,
    )


def in_progress(event_id: UUID) -> str:
    return f"event {event_id} has a delivery in progress; delete it when the attempt has ended"
