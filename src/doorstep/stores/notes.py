"""The texts that stores write for people: history notes, audit entries, reasons. All stores use the same wording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.action import Action, ActionKind, ActionResult, AuditEntry, audit_entry
from doorstep.model.claim import Settlement
from doorstep.model.delivery import EDITED, DeliveryState
from doorstep.model.inbox import InboxAnswered, InboxResult
from doorstep.model.outbox import OutboxMessage

ACCEPTED = "accepted"
ARCHIVED = "archived: no action taken"


def too_many_endpoints(living_max: int) -> str:
    return f"an organization has at most {living_max} endpoints; delete some first, or raise endpoints_max"


def endpoint_name_taken(name: str, holder: UUID) -> str:
    return f"the name {name!r} is taken by endpoint {holder}; choose another name, or change that endpoint"


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
    if settlement.due_at is None:
        return f"failed: {code}, waiting for an operator"
    if not settlement.counted:
        return f"failed: {code}, no retry used"
    return f"failed: {code}, retry {settlement.claim.retry_attempts + 1} of {settlement.retries_max}"


def dead(code: str | None) -> str:
    return f"dead: {code}"


def acted(action: Action, name: str) -> str:
    """For example `retried by Lena: reason`, or `retried by Lena` if no reason was given. `name` is the actor's."""
    verb = {ActionKind.SKIP: "skipped", ActionKind.CANCEL: "cancelled", ActionKind.RETRY: "retried"}.get(
        action.kind, f"{action.kind}d"
    )
    done = f"{verb} by {name}" if action.payload is None else f"{EDITED}{name}, {verb}"
    return f"{done}: {action.reason}" if action.reason else done


class Edit(NamedTuple):
    """A payload that an operator replaced. The audit log keeps only the sizes and the hashes of the payloads."""

    delivery_id: UUID
    old: bytes
    new: bytes

    @property
    def text(self) -> str:
        return f"payload of delivery {self.delivery_id} edited: {_fingerprint(self.old)} to {_fingerprint(self.new)}"


def _fingerprint(payload: bytes) -> str:
    return f"{len(payload)} bytes, SHA-256 {sha256(payload).hexdigest()}"


def action_entry(action: Action, result: ActionResult, edits: Sequence[Edit]) -> AuditEntry:
    """The audit entry of an action, with a result such as `3 done, 1 refused`, and with every edited payload."""
    name, subjects = str(action.kind), tuple(map(str, dict.fromkeys(action.delivery_ids)))
    if action.audited_as is not None:
        name, subjects = action.audited_as[0], (action.audited_as[1],)
    return AuditEntry(
        at=action.at,
        org_id=action.org_id,
        actor=action.actor,
        action=name,
        subjects=subjects,
        result="; ".join((f"{len(result.done)} done, {len(result.refused)} refused", *(edit.text for edit in edits))),
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
        replace(entry, org_id=org_id, subjects=tuple(sorted(ids)), result=f"{len(ids)} done")
        for org_id, ids in subjects.items()
    ]


def no_entity(pipeline: str, entity_id: str) -> str:
    return f"no {pipeline} {entity_id}"


def deleted(name: str) -> str:
    """The history note of a delivery that was cancelled because its event was deleted. `name` is the actor's."""
    return f"event deleted by {name}"


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


def inbox_entries(org_id: UUID, answered: InboxAnswered, actor: str, at: Instant) -> Iterator[AuditEntry]:
    """One entry for the events that were acknowledged, and one for those that were given back."""
    groups = {
        ("event.acknowledge", "delivered"): [change.event_id for change in answered.changes],
        ("event.nack", "received"): [one for one, is_ in answered.results.items() if is_ is InboxResult.NACKED],
    }
    for (action, result), ids in groups.items():
        if ids:
            yield audit_entry(at, org_id, actor, action, *ids, result=result)


def in_progress(event_id: UUID) -> str:
    return f"event {event_id} has a delivery in progress; delete it when the attempt has ended"
