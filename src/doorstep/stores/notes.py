"""The words that stores write for people: history notes, audit results, reasons. One wording for every store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry
from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.outbox import OutboxMessage

ACCEPTED = "accepted"
EDITED = "payload edited by "
"""How the note of an act begins that gave a delivery a payload of its own."""
ARCHIVED = "archived: untouched"


def too_many_endpoints(living_max: int) -> str:
    return f"an organization has at most {living_max} endpoints; delete some first, or raise endpoints_max"


def too_many_arrangements(most: int) -> str:
    return f"an organization has at most {most} alert rules, channels and silences; remove some first"


def no_alert(alert_id: UUID) -> str:
    return f"no alert {alert_id}"


def claimed(worker: str) -> str:
    return f"claimed by {worker}"


def released(worker: str) -> str:
    return f"handed back untried by {worker}"


def settled(settlement: Settlement) -> str:
    """`delivered`, `dead: NOT_FOUND` or `failed: TIMEOUT, retry 1 of 3`."""
    if settlement.state is DeliveryState.DELIVERED:
        return "delivered"
    code = settlement.outcome.code
    if settlement.state is DeliveryState.DEAD:
        return buried(code)
    return f"failed: {code}, retry {settlement.claim.retry_attempts + 1} of {settlement.retries_max}"


def buried(code: str | None) -> str:
    return f"dead: {code}"


def acted(act: Action) -> str:
    """`retried by ops: reason`, the reason only where one was given."""
    verb = {ActionKind.SKIP: "skipped", ActionKind.CANCEL: "cancelled", ActionKind.RETRY: "retried"}.get(
        act.kind, f"{act.kind}d"
    )
    done = f"{verb} by {act.actor}" if act.payload is None else f"{EDITED}{act.actor}, {verb}"
    return f"{done}: {act.reason}" if act.reason else done


def result(done: ActionResult) -> str:
    """The result in an audit line: `3 done, 1 refused`."""
    return f"{len(done.done)} done, {len(done.refused)} refused"


def act_line(act: Action, done: ActionResult) -> AuditEntry:
    """The line in the audit for an act."""
    action, subjects = str(act.kind), tuple(map(str, dict.fromkeys(act.delivery_ids)))
    if act.audited_as is not None:
        action, subjects = act.audited_as[0], (act.audited_as[1],)
    return AuditEntry(
        at=act.at,
        org_id=act.org_id,
        actor=act.actor,
        action=action,
        subjects=subjects,
        result=result(done),
        reason=act.reason,
    )


def outbox_lines(line: AuditEntry, done: Sequence[OutboxMessage], known: Collection[UUID]) -> list[AuditEntry]:
    """`line` for each of the `known` organizations that the postings are of; its own one stands for the unknown."""
    subjects: dict[UUID, list[str]] = defaultdict(list)
    for posting in done:
        subjects[posting.org_id if posting.org_id in known else line.org_id].append(str(posting.event_id))
    return [
        replace(line, org_id=org_id, subjects=tuple(ids), result=f"{len(ids)} done") for org_id, ids in subjects.items()
    ]


def no_entity(pipeline: str, entity_id: str) -> str:
    return f"no {pipeline} {entity_id}"


# -- deleted events ----------------------------------------------------------------------------------------


def deleted(actor: str) -> str:
    """Why a waiting delivery was cancelled."""
    return f"event deleted by {actor}"


def deletion(
    org_id: UUID, event_id: UUID, actor: str, at: Instant, cancelled: int, letters: int, reason: str
) -> AuditEntry:
    return AuditEntry(
        at=at,
        org_id=org_id,
        actor=actor,
        action="event.delete",
        subjects=(str(event_id),),
        result=f"{cancelled} cancelled, {letters} dead letters deleted",
        reason=reason,
    )


def in_progress(event_id: UUID) -> str:
    return f"event {event_id} has a delivery in progress; delete it when that has ended"


def no_payload(delivery_id: UUID) -> str:
    return f"no payload for delivery {delivery_id}: its event was deleted"
