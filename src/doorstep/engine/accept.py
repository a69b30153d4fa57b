"""Step one: accept events. An event is confirmed only after it and all its deliveries are stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any, TypedDict, cast
from uuid import UUID

from doorstep.clock import LATEST, Clock, Instant, from_datetime
from doorstep.coalesce import Coalescer, Weight
from doorstep.engine import facts
from doorstep.engine.directory import Directory, Tuning
from doorstep.engine.fan_out import fan_out
from doorstep.engine.intake import Intake, Offer
from doorstep.errors import InvalidInput, NotFound, StaleRouting, StoreUnavailable
from doorstep.model.claim import Claim
from doorstep.model.event import Event, EventContent, Receipt, Submission, any_left
from doorstep.model.record import uuid7
from doorstep.payloads import json_of
from doorstep.policy.payload import check_payload
from doorstep.policy.search import search_keys
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.redaction import safe_message
from doorstep.telemetry.tracing import current, incoming, kept

_BATCH_MAX = Weight(1_000, 16 * 1024 * 1024)
"""The maximum number of events and of bytes in one commit. Writing 16 MiB blocks all other writes for a tenth of a
second."""
_STALE_TRIES = 5
_EVENT_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,127}")
_CORRELATION_ID = re.compile(r"[!-~]{0,128}")
_KEY_CHARACTERS_MAX = 255
USER_CHARACTERS_MAX = 200
_METADATA_BYTES_MAX = 16_384
_STORED_BYTES_MAX = 2**29
"""The largest payload from the outbox. SQLite and PostgreSQL store values of up to 1 GB, but the whole statement must
also fit within 1 GB."""


KEY_CONFLICT = "this idempotency key was used for another event within 24 hours; use a new key"


class Draft(EventContent, frozen=True, kw_only=True):
    """An event as its sender describes it."""

    endpoint_ids: tuple[UUID, ...] | None = None
    """Send only to these endpoints (at least one). None means all endpoints whose event types match."""
    idempotency_key: str | None = None
    event_id: UUID | None = None
    """For an event from the outbox: its id, which the sender has already received. If None, a new id is created."""
    deleted: tuple[UUID, ...] = ()
    """Endpoints from `endpoint_ids` that were deleted while the event was in the outbox. Their deliveries become dead
    letters."""


_Call = tuple[Draft, ...]


class Accepter:
    """Accepts drafts from any number of concurrent callers and commits them together."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        clock: Clock,
        tuning: Tuning,
        telemetry: Telemetry,
        wake: Callable[[], None],
        new_id: Callable[[Instant], UUID] = uuid7,
        check_store: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`check_store` raises StoreUnavailable if the store does not respond. Senders then do not wait for it."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._telemetry = telemetry
        self._wake = wake
        self._payload_bytes_max = tuning.payload_bytes_max
        self.intake: Intake | None = None
        """Claims deliveries while they are accepted; None while this process does not deliver."""
        self._new_id = new_id
        self.store_seconds = 0.0
        """How long the last transaction took."""
        self._coalescer: Coalescer[_Call, list[Receipt]] = Coalescer(
            self._accept_calls,
            _weigh,
            batch_max=_BATCH_MAX,
            queue_max=Weight(tuning.accept_queue_max, tuning.accept_queue_bytes_max),
            check=check_store,
        )

    @property
    def waiting(self) -> int:
        """The number of events waiting to be stored."""
        return self._coalescer.waiting.events

    async def accept(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store all drafts or none, in one transaction; returns one receipt for each.

        The verdict CONFLICT means that a draft was not stored because its idempotency key belongs to another event.
        """
        for position, draft in enumerate(drafts):
            # An outbox event is already committed, perhaps under a different limit, so only the store's limit applies.
            payload_bytes_max = self._payload_bytes_max if draft.event_id is None else _STORED_BYTES_MAX
            check(draft, payload_bytes_max, _where(drafts, position))
            await self._directory.check_org(draft.org_id)
        return await self._coalescer.submit(tuple(drafts))

    async def _accept_calls(self, calls: list[_Call]) -> Sequence[list[Receipt] | Exception]:
        orgs = {draft.org_id for call in calls for draft in call}
        for _ in range(_STALE_TRIES):
            await self._directory.load(orgs)
            now = self._clock.now()
            try:
                with self.intake.offer(now) if self.intake else nullcontext() as offer:
                    return await self._accept_group(calls, now, offer)
            except StaleRouting:
                await self._directory.reload(orgs)
        raise StoreUnavailable("endpoints change faster than events can be routed; try again")

    async def _accept_group(
        self, calls: list[_Call], now: Instant, offer: Offer | None
    ) -> Sequence[list[Receipt] | Exception]:
        prepared = [self._prepare(call, now, offer) for call in calls]
        submissions = [submission for part in prepared if isinstance(part, list) for submission in part]
        receipts = iter(await self._store_all(submissions, now, offer))
        return [part if isinstance(part, Exception) else [next(receipts) for _ in part] for part in prepared]

    async def _store_all(self, submissions: list[Submission], now: Instant, offer: Offer | None) -> list[Receipt]:
        lease = offer.lease if offer else None
        routing = self._directory.versions({one.event.org_id for one in submissions})
        began = perf_counter()
        receipts = await self._store.accept(submissions, routing, now, lease)
        self.store_seconds = perf_counter() - began
        claims = [claim for receipt in receipts for claim in receipt.claims]
        if self._telemetry.has_subscribers:
            self._telemetry.emit_all((*facts.accepted(submissions, receipts), *facts.claimed(claims)))
        if tracing := self._telemetry.tracing:
            tracing.record(facts.accepted_spans(submissions, receipts, self._clock.now(), tracing))
        if claims and self.intake:
            self._start(self.intake, claims)
        if any_left(submissions, receipts):
            self._wake()
        return receipts

    def _start(self, intake: Intake, claims: Sequence[Claim]) -> None:
        """Start the claims. The events are stored, so an error here must not make their senders repeat them. If an
        attempt did not start, its lease runs out, and another worker takes over."""
        try:
            intake.take(claims)
        except Exception as error:  # noqa: BLE001  a bug in Doorstep
            message = f"claims of accepted events could not be started: {safe_message(error)}"
            self._telemetry.note(self._clock.now(), "error", message, claims=len(claims))

    def _prepare(self, call: _Call, now: Instant, offer: Offer | None) -> list[Submission] | InvalidInput | NotFound:
        """The submissions of one call. If the call names an unknown endpoint, only this call fails, not the whole
        batch."""
        submissions: list[Submission] = []
        for position, draft in enumerate(call):
            if self._directory.org(draft.org_id) is None:  # another process has deleted it: the directory was reloaded
                return NotFound(f"no organization {draft.org_id}")
            try:
                submissions.append(self._submission(draft, now, offer))
            except InvalidInput as error:
                return InvalidInput(_where(call, position) + error.field, error.message)
        return submissions

    def _submission(self, draft: Draft, now: Instant, offer: Offer | None) -> Submission:
        event_id, tracing = draft.event_id or self._new_id(now), self._telemetry.tracing
        trace = kept(draft.trace)
        event = Event(
            event_id=event_id,
            org_id=draft.org_id,
            event_type=draft.event_type,
            payload=draft.payload,
            created_at=now,  # also for events from the outbox: deadlines and retention start at acceptance
            correlation_id=draft.correlation_id,
            deliver_at=draft.deliver_at,
            expires_at=draft.expires_at,
            metadata=draft.metadata,
            ordering_key=draft.ordering_key,
            trace=tracing.begin(event_id) if tracing and trace is None else trace,
            user_id=draft.user_id,
        )
        deliveries = fan_out(event, draft.endpoint_ids, draft.deleted, self._directory, partial(self._new_id, now))
        if offer is not None:
            deliveries = offer.mark(event, deliveries)
        org = self._directory.org(draft.org_id)
        keys = search_keys(event.payload, event.metadata, org.search_fields) if org and org.search_fields else ()
        if draft.idempotency_key is None:
            return Submission(event, deliveries, search_keys=keys)
        return Submission(event, deliveries, stored_key(draft.idempotency_key, draft.user_id), fingerprint(draft), keys)


def _where(drafts: Sequence[Draft], position: int) -> str:
    """The prefix of field names in errors. It identifies the draft if there are several."""
    return "" if len(drafts) == 1 else f"events[{position}]."


def _weigh(call: _Call) -> Weight:
    return Weight(len(call), sum(len(draft.payload) + len(draft.metadata) for draft in call))


def fingerprint(draft: Draft) -> bytes:
    """A hash that distinguishes a repeated request from a different request with the same idempotency key."""
    when = (draft.deliver_at, draft.expires_at, draft.ordering_key)
    parts = (draft.event_type, draft.endpoint_ids, *when, draft.metadata, draft.payload)
    return hashlib.sha256(repr(parts).encode()).digest()


def check_event_type(field: str, event_type: str) -> None:
    """Raise InvalidInput unless an event may have this type."""
    if not _EVENT_TYPE.fullmatch(event_type):
        raise InvalidInput(
            field,
            "must be 1 to 128 letters, digits and the characters _ . : / - and must start with a letter, a digit or _, "
            f"got {event_type[:140]!r}",
        )


def check(draft: Draft, payload_bytes_max: int, where: str = "") -> None:
    """Raise InvalidInput for a draft that some store could not hold or some receiver could not read."""
    _check_types(draft, where)
    check_payload(draft.payload, payload_bytes_max, f"{where}payload")
    check_event_type(f"{where}event_type", draft.event_type)
    check_key(f"{where}idempotency_key", draft.idempotency_key)
    check_key(f"{where}ordering_key", draft.ordering_key)
    check_user(f"{where}user_id", draft.user_id)
    if not _CORRELATION_ID.fullmatch(draft.correlation_id):
        raise InvalidInput(f"{where}correlation_id", "must be at most 128 visible ASCII characters")
    if draft.metadata != b"{}":
        _check_metadata(f"{where}metadata", draft.metadata)
    if draft.endpoint_ids == ():
        message = "must name at least one endpoint; leave it out to send to all whose event types match"
        raise InvalidInput(f"{where}endpoint_ids", message)
    if draft.expires_at is not None and draft.deliver_at is not None and draft.expires_at <= draft.deliver_at:
        raise InvalidInput(f"{where}expires_at", "must be later than deliver_at")


def _check_types(draft: Draft, where: str) -> None:
    """Check types at run time: callers without a type checker may pass anything.

    Without this check, a wrong type in an outbox event would only cause an error after the caller's commit.
    """
    if not isinstance(draft.event_type, str):
        raise InvalidInput(f"{where}event_type", f"must be text, got {draft.event_type!r:.100}")
    if not isinstance(draft.correlation_id, str):
        raise InvalidInput(f"{where}correlation_id", f"must be text, got {draft.correlation_id!r:.100}")
    if draft.deliver_at is not None:
        _check_instant(f"{where}deliver_at", draft.deliver_at)
    if draft.expires_at is not None:
        _check_instant(f"{where}expires_at", draft.expires_at)
    if not isinstance(draft.org_id, UUID):
        raise InvalidInput(f"{where}org_id", f"must be a UUID, got {draft.org_id!r:.100}")
    for endpoint_id in draft.endpoint_ids or ():
        if not isinstance(endpoint_id, UUID):
            raise InvalidInput(f"{where}endpoint_ids", f"must be UUIDs, got {endpoint_id!r:.100}")


def _check_instant(field: str, instant: object) -> None:
    if type(instant) is not int or not 0 <= instant < LATEST:
        message = "must be a datetime with a time zone, not before 1970 and before the year 10000"
        raise InvalidInput(field, f"{message}, got {instant!r:.100}")


def stored_key(key: str | None, user_id: str | None) -> str | None:
    """The idempotency key as it is stored: each user has their own. A key cannot contain the newline."""
    return key if key is None or user_id is None else f"{user_id}\n{key}"


def check_user(field: str, user_id: str | None) -> None:
    """Raise InvalidInput if this is not a valid user id. Keys and events may have a user."""
    if user_id is not None and not (
        isinstance(user_id, str) and 0 < len(user_id) <= USER_CHARACTERS_MAX and user_id.isprintable()
    ):
        raise InvalidInput(field, f"must be 1 to {USER_CHARACTERS_MAX} printable characters")


def check_key(field: str, key: str | None) -> None:
    if key is not None and not (
        isinstance(key, str) and 0 < len(key) <= _KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()
    ):
        raise InvalidInput(field, f"must be 1 to {_KEY_CHARACTERS_MAX} printable ASCII characters")


def _check_metadata(field: str, metadata: bytes) -> None:
    """Metadata must be a JSON object that follows the rules for payloads."""
    check_payload(metadata, _METADATA_BYTES_MAX, field)
    if metadata.lstrip()[:1] != b"{":
        raise InvalidInput(field, "must be an object")


class Options(TypedDict, total=False):
    """The options of `send`."""

    org_id: UUID
    endpoint_ids: Sequence[UUID] | None
    """Send only to these endpoints. If omitted, the event goes to all endpoints whose event types match."""
    deliver_at: datetime | None
    """A time with a time zone."""
    expires_at: datetime | None
    """No attempt starts after this time. Deliveries that are still waiting become dead letters."""
    metadata: Mapping[str, object] | bytes
    ordering_key: str | None
    """Events with the same key reach each endpoint in the order in which they were accepted."""
    idempotency_key: str | None
    correlation_id: str | None
    user_id: str | None
    """The user who owns the event. Among keys with a user, only this user's can access the event."""
    traceparent: str | None
    """The W3C trace context of the event. If omitted, the current OpenTelemetry context is used, if any."""
    tracestate: str | None


_OPTION_NAMES = Options.__annotations__.keys()


def draft_of(event_type: str, payload: object, default_org: UUID, options: Options) -> Draft:
    """Build a draft from the arguments of `send`.

    A payload given as bytes must be JSON and is sent unchanged. Any other value is encoded as JSON: plain values,
    pydantic models, dataclasses, TypedDicts and msgspec structs.
    """
    check_options(options)
    return Draft(
        org_id=options.get("org_id", default_org),
        event_type=event_type,
        payload=_json("payload", payload),
        correlation_id=options.get("correlation_id") or new_correlation_id(),
        endpoint_ids=_ids(options.get("endpoint_ids")),
        deliver_at=_instant("deliver_at", options.get("deliver_at")),
        expires_at=_instant("expires_at", options.get("expires_at")),
        metadata=_json("metadata", options.get("metadata", b"{}")),
        ordering_key=options.get("ordering_key"),
        idempotency_key=options.get("idempotency_key"),
        trace=_trace(options),
        user_id=options.get("user_id"),
    )


def check_options(options: Options) -> None:
    """Raise InvalidInput for an unknown option: a misspelled `idempotency_key` must not be ignored."""
    for name in options.keys() - _OPTION_NAMES:
        raise InvalidInput(name, f"is not an option of send; use one of {', '.join(_OPTION_NAMES)}")


def drafts_of(given: Iterable[tuple[str, object] | tuple[str, object, Options]], default_org: UUID) -> list[Draft]:
    """Build drafts from the arguments of `send_many`. An error names the event."""
    drafts: list[Draft] = []
    for position, one in enumerate(given):
        event_type, payload, options = _parts(f"events[{position}]", one)
        try:
            drafts.append(draft_of(event_type, payload, default_org, options))
        except InvalidInput as error:
            raise InvalidInput(f"events[{position}].{error.field}", error.message) from None
    return drafts


def _parts(field: str, given: object) -> tuple[Any, object, Options]:
    """The event type, payload and options of one event of `send_many`."""
    match given:
        case (event_type, payload):
            return event_type, payload, {}
        case (event_type, payload, {**options}):
            return event_type, payload, cast(Options, options)
    message = "must be a tuple of event type and payload, or of event type, payload and a dict with options"
    raise InvalidInput(field, f"{message}, got {given!r:.100}")


def new_correlation_id() -> str:
    return secrets.token_hex(16)


def _trace(options: Options) -> str | None:
    given = options.get("traceparent")
    if given is None:
        return current()
    trace = incoming(given, options.get("tracestate"))
    if trace is None:
        message = "must be a W3C traceparent: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"
        raise InvalidInput("traceparent", message)
    return trace


def _json(field: str, value: object) -> bytes:
    try:
        return json_of(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(field, f"cannot be written as JSON: {error}") from None


def _ids(endpoint_ids: object) -> tuple[UUID, ...] | None:
    if endpoint_ids is None:
        return None
    if isinstance(endpoint_ids, Iterable) and not isinstance(endpoint_ids, str | bytes):
        return tuple(endpoint_ids)
    raise InvalidInput("endpoint_ids", f"must be a list of UUIDs, got {endpoint_ids!r:.100}")


def _instant(field: str, when: datetime | None) -> Instant | None:
    if when is None:
        return None
    if not isinstance(when, datetime):  # callers without a type checker may pass anything
        raise InvalidInput(field, f"must be a datetime with a time zone, got {when!r:.100}")
    try:
        return from_datetime(when)
    except ValueError as error:
        raise InvalidInput(field, str(error)) from None
