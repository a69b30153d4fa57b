"""Additions to the OpenAPI document for schemathesis, which imports this module itself (see test_fuzz.py).

Endpoints created by the fuzzer point to receivers on this machine. The fuzzer must not revoke its own key, because
after that it would only get 401s. Valid requests are adjusted to rules that JSON Schema cannot express (such as exactly
one of three fields); otherwise most of them would fail on these rules.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

RECEIVERS = os.environ["FUZZ_RECEIVERS"].split(" ")
OWN_KEY_ID = os.environ["FUZZ_OWN_KEY_ID"]
NOBODY = "00000000-0000-7000-8000-000000000000"

BEYOND_A_SCHEMA = (
    r"^cursor: is not a cursor of this list",
    r"^(destination\.)?url: (must|cannot|has|an endpoint needs|contradicts)",
    r"^handler: contradicts",
    r"^body: (give exactly one of|must change something)",
    r"^canary: is only for a retry of dead letters selected by a filter$",
    r"^envelope: is for endpoints with a url",
    r"^headers: .* is set by Doorstep and cannot be changed$",
    r"^endpoint_ids?: (there is no endpoint|endpoint .* was deleted)",
    r"^(events\[\d+\]\.)?endpoint_ids: there is no endpoint",
    r"^endpoint: (no|\d+) endpoints are named ",
    r"^payload: at most 8 fields can be searched at once$",  # together with those of the metadata
    r"^events: must contain each event only once$",  # also with different lease tokens
    r"^role: must be one of publisher, consumer, viewer for a key with a user",  # depends on `user_id`
    r"^secret: must (begin with whs|be random)",  # the prefix depends on `signing`
    r"^status: deliveries in progress cannot be acted upon",  # the filter is shared with the list, which shows these
    r"^timeout_seconds: must be from 0.1 to 59, got ",  # the upper bound is a setting
    r"^threshold: (must be from|is only for) ",  # the bounds differ per rule, and some have none
    r"^(window_seconds|minimum): is only for failure_rate$",
    r"^\S+: is an older name of (since|until); give only",
    r"^(since|until): must be given$",  # under this name or an older one
    r"^\S+: must be between the years 1970 and 9000, got ",
    r"^\S+: must be (later than|in the future)",
    r"^\S+: must not contain NUL or lone surrogates",
    r"^\S+: must be nested at most 64 deep$",
    r"^\S+: must be a whole number, got a number$",  # JSON Schema counts 2.0 as an integer; we do not
    r"^Idempotency-Key: (is for a single event|differs from idempotency_key)",
)
"""Rules that JSON Schema cannot express. The document must describe every other reason for a refusal."""


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """schemathesis calls this for every request of every phase, just before sending it."""
    if OWN_KEY_ID in (case.path_parameters or {}).values():
        case.path_parameters = dict.fromkeys(case.path_parameters, NOBODY)
    if isinstance(case.body, dict):
        body = _mended(case.operation.label, case.body) if _fits(case) else case.body
        case.body = _pointed_here(body)


@schemathesis.check
def refused_for_what_the_document_says(ctx: CheckContext, response: Response, case: Case) -> None:
    """Replaces `positive_data_acceptance`: only a rule beyond JSON Schema may refuse a request that fits the schema."""
    if _fits(case) and response.status_code in (400, 413, 422):
        detail = json.loads(response.content)["detail"]
        assert any(re.search(rule, detail) for rule in BEYOND_A_SCHEMA), (
            f"refused, though it fits the document: {detail}"
        )


@schemathesis.check
def errors_are_worded_by_us(ctx: CheckContext, response: Response, case: Case) -> None:
    """Errors contain neither a traceback nor a framework's own message, whatever caused them."""
    if response.status_code >= 400:
        assert response.headers["content-type"] == ["application/problem+json"]
        assert json.loads(response.content)["status"] == response.status_code
        assert "Traceback" not in response.text and ".py" not in response.text


def _fits(case: Case) -> bool:
    """Whether schemathesis generated the request to fit the document."""
    return case.meta is not None and case.meta.generation.mode.is_positive


def _mended(route: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body with changes that this route requires beyond its schema."""
    match route:
        case "POST /v1/endpoints":
            return _with_one_of({"url": RECEIVERS[0], **body}, ("destination", "url", "handler"))
        case "POST /v1/channels":
            return _within_reach(body)
        case "POST /v1/alert-rules":
            return _of_its_rule(body)
        case "POST /v1/silences" if body.get("from_at") is None:
            return body | {"until_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    return _with_one_of(body, ("delivery_ids", "filter", "all"))


def _with_one_of(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    kept = next((name for name in names if body.get(name)), "")
    return {name: value for name, value in body.items() if name not in names or name == kept}


def _within_reach(channel: dict[str, Any]) -> dict[str, Any]:
    """Give a channel a local target and a rule that never fires: otherwise each dead letter would notify hundreds."""
    receiver = RECEIVERS[_chance(channel) % len(RECEIVERS)]
    targets = {"email": "ops@shop.example", "apprise": receiver.replace("http:", "json:")}
    where = {"target": targets.get(channel["kind"], receiver), "endpoint_ids": []}
    return channel | where | {"rules": ["oldest_due"]}


def _of_its_rule(body: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields that only other rules have."""
    strange = {
        "failure_rate": set(),
        "dead_letters": {"window_seconds", "minimum"},
        "oldest_due": {"window_seconds", "minimum"},
    }.get(body["rule"], {"window_seconds", "minimum", "threshold"})
    return {name: value for name, value in body.items() if name not in strange}


def _pointed_here(body: dict[str, Any]) -> dict[str, Any]:
    """Point an endpoint to a local receiver, with rare event types: otherwise each event would go to hundreds."""
    destination = body.get("destination")
    inner = destination if isinstance(destination, dict) and isinstance(destination.get("url"), str) else None
    url = body.get("url") if inner is None else inner["url"]
    if not isinstance(url, str) or not url.lower().startswith("http"):
        return body
    chance = _chance(body)
    here = {"url": RECEIVERS[chance % len(RECEIVERS)]}
    taken = {"event_types": [f"fuzz.{chance}"]} if _is_list_of_text(body.get("event_types", [])) else {}
    return body | ({"destination": inner | here} if inner else here) | taken


def _chance(body: dict[str, Any]) -> int:
    """A number that depends only on the request, so that every run makes the same choices."""
    return zlib.crc32(repr(body).encode())


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
