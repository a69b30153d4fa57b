"""The paths of all console pages: with existing ids, with filters, and with every range."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from bench.crowded import Ids
from bench.reviewing import WAITING
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.charts import RANGES
from doorstep.console.fields import AGES
from doorstep.console.pages.endpoints import COLUMNS
from doorstep.console.routes import all_pages
from doorstep.model.batch import BatchStatus
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus


def every_page(ids: Ids) -> list[str]:
    """All pages in all variants. If the id for a page is unknown, this is an error in this module."""
    known, variants = _known(ids), _variants(ids)
    found: list[str] = []
    for page in all_pages():
        if page.method != "GET":
            continue
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: known[name[1]], page.path)
        found += [f"{path}?{query}" if query else path for query in variants.get(page.path, [""])]
    return found + _more(ids)


def _known(ids: Ids) -> Ids:
    return {"number": "1", "act": "resolve", "org_id": str(DEFAULT_ORG), **ids}


def _more(ids: Ids) -> list[str]:
    """Further variants: an event for every endpoint, a delivered event, a waiting delivery."""
    return [
        f"/console/events/{ids['wide_id']}",
        f"/console/events/{ids['delivered_id']}",
        f"/console/deliveries/{ids['waiting_id']}",
    ]


def _variants(ids: Ids) -> dict[str, list[str]]:
    """The query strings for each page. Pages that are not listed are requested without a query string."""
    endpoint, days = f"endpoint_id={ids['endpoint_id']}", _days()
    ranges = [f"range={name}" for name in RANGES]
    letters = ["", endpoint, "event_type=bench", "event_type=nobodys.*", "status=archived", f"died_from={days[2]}"]
    cause = f"cause={1:016x}"
    questions = ["all=yes", "all=yes&event_type=nobodys", f"all=yes&{endpoint}", f"id={ids['delivery_id']}"]
    created = f"created_from={days[7]}&created_before={days[1]}"
    past = f"since={days[7]}&until={days[1]}"
    listed = ["", past, "event_type=bench", "event_type=nobodys.*", "error_code=INVALID_FORMAT", "error_code=NEVER"]
    searched = ["past", "bench", "nobody", "order.id=42", "metadata.customer=7", ids["event_id"], ids["event_id"][-8:]]
    return {
        "/console": [*ranges, "charts=all"],
        "/console/outcome": [f"delivery={ids['waiting_id']}&after=0"],
        "/console/retry-queue": [
            "", endpoint, "status=pending", "status=in_progress", "event_type=bench", "event_type=nobodys",
            *(f"age={age}" for age in AGES),
        ],
        "/console/retry-queue/retry": ["all=yes", f"all=yes&{endpoint}", f"id={ids['waiting_id']}"],
        "/console/retry-queue/skip": ["all=yes"],
        "/console/events": [
            "", *(f"status={status}" for status in EventStatus), "event_type=bench", "event_type=nobodys.*", created,
        ],
        "/console/events/find": [f"id={ids['event_id']}", f"id={ids['delivery_id']}"],
        "/console/dead-letters": [*letters, cause],
        "/console/dead-letters/letters": [*letters, cause, f"{cause}&{endpoint}", f"{cause}&event_type=bench"],
        "/console/dead-letters/retry": [*questions, f"all=yes&{cause}"],
        "/console/dead-letters/resolve": questions[:1],
        "/console/dead-letters/delete": questions[:1],
        "/console/dead-letters/export": [f"cause={2:016x}", f"cause={2:016x}&format=csv", f"cause={2:016x}&payload=yes"],
        "/console/endpoints": ["", "name=bench.19", "name=nobodys", "trouble=yes", "waiting=yes", "state=paused",
            *(f"sort={by}" for by in COLUMNS),
        ],
        "/console/endpoints/{endpoint_id}": ranges,
        "/console/endpoints/{endpoint_id}/deliveries": [*listed, *(f"state={state}" for state in DeliveryState)],
        "/console/endpoints/{endpoint_id}/attempts": [*listed, "state=succeeded", "state=failed"],
        "/console/endpoints/{endpoint_id}/replay": ["", created, f"{created}&event_type=nobodys", f"{created}&status=failed"],
        "/console/alerts": ["", "state=open", "state=ended", "rule=oldest_due", endpoint],
        "/console/alerts/rules/edit": ["rule=oldest_due"],
        "/console/batches": ["", *(f"status={status}" for status in BatchStatus), "event_type=nobodys"],
        "/console/pipelines/{pipeline}": ["", f"status={WAITING}", "status=checking", "archived=yes"],
        "/console/search": [f"q={words}" for words in searched],
        "/console/audit": ["", past, "actor=past", f"actor=past&{past}", "actor=nobody", "action=delivery.retry"],
    }  # fmt: skip


def _days() -> list[str]:
    """Dates in the past."""
    today = datetime.now(UTC)
    return [(today - timedelta(days=ago)).date().isoformat() for ago in range(8)]
