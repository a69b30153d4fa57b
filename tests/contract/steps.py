"""The steps of the lockstep machine: each store method with its weight and the strategies for its arguments.

The choices are few and close together on purpose. Otherwise leases would not end, keys would not repeat, and limits
would not be reached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from doorstep.clock import DAY, SECOND
from doorstep.model.action import ActionKind
from doorstep.model.endpoint import CircuitState, EndpointState
from doorstep.model.event import EventStatus
from doorstep.model.outbox import OutboxOptions
from tests.contract import wanted
from tests.support.builders import NOW

SPANS = st.sampled_from([0, 1, SECOND, 30 * SECOND, 60 * SECOND])
WAITS = st.sampled_from([1, SECOND, 30 * SECOND, 60 * SECOND, 3600 * SECOND, DAY])
LIMITS = st.integers(1, 4)
ENDPOINTS = st.integers(0, 2)
ENDS = st.sampled_from(["delivered", "retry", "retry", "on recovery", "restored", "held", "dead"])
ORGS = st.sampled_from([0, 0, 0, 1])
RETRIES = st.integers(0, 3)
LEASES = st.sampled_from([SECOND, 30 * SECOND])
PICKS = st.lists(st.integers(0, 9), min_size=1, max_size=4)
"""How far to go back in a list of existing things; 0 is the newest."""

OWNERS = st.sampled_from([None, None, "ada", "ben"])
OWED = st.tuples(ENDPOINTS, SPANS, RETRIES)
"""Endpoint, time until due, retries allowed."""
EVENTS = st.tuples(
    st.lists(OWED, max_size=3, unique_by=lambda owed: owed[0]),
    st.sampled_from([None, None, "k1", "k2"]),
    st.booleans(),
    st.sampled_from([None, None, SECOND, 30 * SECOND]),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from([None, None, SECOND, 60 * SECOND]),
    st.booleans(),
    st.booleans(),
    OWNERS,
)
"""An event's deliveries, idempotency key, which of two bodies, time until it expires, ordering key, delay, whether the
first delivery is a batch, whether the deliveries may be claimed at once, and its user."""
POSTINGS = st.builds(
    OutboxOptions,
    correlation_id=st.sampled_from(["", "request-7"]),
    deliver_at=st.sampled_from([None, None, NOW + SECOND]),
    expires_at=st.sampled_from([None, None, NOW + DAY]),
    metadata=st.sampled_from([None, ' {"a": "\\u0000 é"} ']),
    ordering_key=st.sampled_from([None, None, "a"]),
    user_id=OWNERS,
)
QUOTAS = st.lists(
    st.tuples(
        ENDPOINTS,
        st.integers(0, 4),
        st.sampled_from([None, None, 1, 2]),
        st.sampled_from([None, None, 0.5, 20.0]),
        st.sampled_from([None, None, "due after", "due until", "attempted before"]),
        SPANS,
    ),
    max_size=3,
    unique_by=lambda quota: quota[0],
)
"""Endpoint, count, concurrency, rate, which deliveries, and how long ago."""


_LIST: dict[str, st.SearchStrategy[Any]] = {"org": ORGS, "limit": wanted.LIMITS}
_WORDS = st.sampled_from([None, None, "ops", "retry", "skip", "nobody"])


class Verb(NamedTuple):
    weight: int
    """How often the step is drawn, relative to the others."""
    arguments: dict[str, st.SearchStrategy[Any]]


VERBS: dict[str, Verb] = {
    "wait": Verb(4, {"span": WAITS}),
    "accept": Verb(6, {"events": st.lists(EVENTS, min_size=1, max_size=4), "org": ORGS, "lease": st.none() | LEASES}),
    "accept_from_old_endpoints": Verb(1, {"events": st.lists(EVENTS, max_size=2)}),
    "claim": Verb(
        5,
        {
            "quotas": QUOTAS,
            "lease": LEASES,
            "worker": st.sampled_from("ab"),
            "forced_max": st.integers(0, 2),
            "unserved": st.lists(ENDPOINTS, max_size=1),
        },
    ),
    "claim_all": Verb(2, {}),
    "expired": Verb(2, {"limit": LIMITS}),
    "settle": Verb(
        8, {"picks": PICKS, "ends": st.lists(ENDS, min_size=4, max_size=4), "span": SPANS, "retries_max": RETRIES}
    ),
    "release": Verb(3, {"picks": PICKS}),
    "renew_leases": Verb(1, {"worker": st.sampled_from("ab")}),
    "shift_waits": Verb(1, {"back": SPANS}),
    "routing": Verb(1, {"behind": st.integers(-1, 3)}),
    "due_lanes": Verb(1, {"later_max": st.sampled_from([None, 0, 10])}),
    "change_endpoint": Verb(
        1,
        {
            "n": ENDPOINTS,
            "state": st.sampled_from(EndpointState),
            "behind": st.sampled_from([0, 0, 1]),
            "audited": st.booleans(),
        },
    ),
    "change_circuit": Verb(
        1, {"n": ENDPOINTS, "state": st.sampled_from(CircuitState), "failures": RETRIES, "behind": st.integers(0, 1)}
    ),
    "dead_letter_waiting": Verb(
        1, {"n": ENDPOINTS, "limit": LIMITS, "created_before": st.sampled_from([None, NOW, NOW + DAY])}
    ),
    "act": Verb(
        6,
        {
            "kind": st.sampled_from(ActionKind),
            "picks": PICKS,
            "org": ORGS,
            "span": SPANS,
            "reason": st.sampled_from(["", "because"]),
        },
    ),
    "edit_and_retry": Verb(
        2, {"pick": st.integers(0, 9), "org": ORGS, "payload": st.sampled_from([b"", b"edited", b"\x00\xff"])}
    ),
    "delete_event": Verb(2, {"pick": st.integers(0, 9), "org": ORGS}),
    "lease_inbox": Verb(
        3,
        {
            "types": st.sampled_from([[], [], ["order.paid"], ["user.created", "none", "order.paid"]]),
            "org": ORGS,
            "limit": LIMITS,
            "lease": LEASES,
            "user": OWNERS,
        },
    ),
    "answer_inbox": Verb(
        3,
        {
            "picks": PICKS,
            "org": ORGS,
            "token": st.sampled_from([None, None, 1, 2]),
            "delay": st.sampled_from([None, None, 0, SECOND]),
            "user": OWNERS,
        },
    ),
    "archive": Verb(1, {"age": SPANS, "limit": LIMITS}),
    "expire": Verb(2, {"since": SPANS, "limit": LIMITS}),
    "clean": Verb(1, {"age": SPANS, "limit": LIMITS, "inbox_age": SPANS, "audit_age": SPANS}),
    "post": Verb(3, {"options": st.lists(POSTINGS, min_size=1, max_size=3), "org": ORGS}),
    "forward": Verb(2, {"limit": LIMITS, "cleared": st.sampled_from([True, True, False])}),
    "clear_outbox": Verb(1, {"picks": PICKS}),
    "reject": Verb(2, {"picks": PICKS, "why": st.sampled_from(["no such endpoint", "too long"])}),
    "requeue": Verb(1, {"picks": PICKS}),
    "discard": Verb(1, {"picks": PICKS}),
    "read_outbox": Verb(1, {"limit": LIMITS}),
    "aggregate": Verb(2, {"minutes": SPANS, "hours": SPANS}),
    "figures": Verb(1, {"org": ORGS, "since": WAITS, "until": SPANS}),
    "list_events": Verb(1, {"wanted": wanted.EVENT_FILTERS, "endpoint": st.none() | ENDPOINTS, **_LIST}),
    "short_ids": Verb(1, {"kind": st.sampled_from(["event", "delivery"]), "pick": st.integers(0, 9), **_LIST}),
    "inbox": Verb(1, {"status": st.sampled_from([EventStatus.RECEIVED, EventStatus.FAILED]), "user": OWNERS, **_LIST}),
    "list_deliveries": Verb(1, {"wanted": wanted.DELIVERIES, "endpoint": st.none() | ENDPOINTS, **_LIST}),
    "list_attempts": Verb(1, {"wanted": wanted.ATTEMPTS, "endpoint": st.none() | ENDPOINTS, **_LIST}),
    "retry_queue": Verb(1, {"wanted": wanted.QUEUES, "endpoint": st.none() | ENDPOINTS, **_LIST}),
    "dead_letters": Verb(
        1, {"wanted": wanted.LETTERS, "endpoint": st.none() | ENDPOINTS, "cause": st.integers(0, 5), **_LIST}
    ),
    "list_batches": Verb(1, {"wanted": wanted.BATCHES, **_LIST}),
    "list_endpoints": Verb(1, {"state": wanted.STATES, **_LIST}),
    "list_audit": Verb(1, {"actor": _WORDS, "action": _WORDS, "picks": st.just([]) | PICKS, **_LIST}),
    "compare_everything": Verb(1, {}),
}


STEPS = st.sampled_from([name for name, verb in VERBS.items() for _ in range(verb.weight)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(VERBS[name].arguments))
)
