"""`doorstep stats`, `workers`, `slo` and `tail`: monitoring of a running Doorstep."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import typer

from doorstep.cli.commands import PAGE_MAX, Paging, Session, remote
from doorstep.cli.options import DurationSeconds, EventType, OfEndpoint, Share, flag, option
from doorstep.cli.output import Column, Output, cell, columns, duration, percent, say, visible
from doorstep.schemas.stats import Range

if TYPE_CHECKING:
    from rich.text import Text

    from doorstep.client import Client
    from doorstep.schemas.deliveries import DeadLetter, QueuedDelivery
    from doorstep.schemas.events import EventItem
    from doorstep.schemas.stats import Report

commands = typer.Typer()
slo = typer.Typer()


# -- statistics --------------------------------------------------------------------------------------------


@remote(commands)
def stats(
    session: Session,
    range: Annotated[Range | None, flag("--range", "Also show statistics of this period.")] = None,
    endpoint: OfEndpoint = None,
) -> None:
    """Show queue depth, dead letters and inbox size; with --range, also small charts of the past.

    Example: `doorstep stats --range 24h`
    """
    found = session.client.stats(range, endpoint_id=session.endpoint_id(endpoint))
    if session.output.as_json:
        session.output.json(found)
        return
    counts = {**found.deliveries, **found.events}
    shown: dict[str, object] = {name: f"at least {n}" if name in found.floors else n for name, n in counts.items()}
    session.output.answer(shown | {"circuits open": found.circuits_open, "oldest due": found.oldest_due_at})
    if found.report is not None:
        session.output.text("")
        session.output.answer(dict(_charts(found.report)))


def _charts(report: Report) -> Iterator[tuple[str, object]]:
    """Each series of the report as a label and a small chart, with its total or current value."""
    summary, series = report.sum, report.series
    yield f"last {report.range}", f"{report.since:%Y-%m-%d %H:%M} to now, UTC"
    if series.events is not None and summary.events is not None:
        for name, values in series.events.items():
            yield f"events {name}", _chart(values, f"{summary.events[name]:,}", sum)
    yield "success rate", _chart(series.success_rate, percent(summary.success_rate), min)
    for name in ("p50", "p95", "p99"):
        yield f"time {name}", _chart(series.time_to_delivery[name], duration(summary.time_to_delivery[name]), max)
    for name in ("p50", "p95", "p99"):
        yield f"response {name}", _chart(series.response_time[name], duration(summary.response_time[name]), max)
    yield "queue depth", _chart(series.queue_depth, f"{series.queue_depth[-1]:,} now", max)
    yield "dead letters", _chart(series.dead_letters, f"{series.dead_letters[-1]:,} now", max)
    retries = [one["deliveries"] for one in summary.retry_attempts]
    yield "retries used", f"{sparkline(retries)}  {', '.join(f'{used}: {n:,}' for used, n in enumerate(retries) if n)}"


def _chart(values: Sequence[float | None], total: str, combine: Callable[..., float]) -> str:
    return f"{sparkline(values, combine=combine)}  {total}"


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int = 48, combine: Callable[..., float] = max) -> str:
    """One character per value; a blank if there is no value. If there are more than `width` values, neighbouring values
    are combined."""
    size = max(1, -(-len(values) // width))
    groups = [[one for one in values[at : at + size] if one is not None] for at in range(0, len(values), size)]
    points = [combine(group) if group else None for group in groups]
    top = max((point for point in points if point is not None), default=0.0) or 1.0
    return "".join(" " if point is None else _BARS[round(point / top * (len(_BARS) - 1))] for point in points)


# -- targets -----------------------------------------------------------------------------------------------


def _rounded(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}" if number >= 10 else f"{number:.2g}"


_SLO = (
    Column("endpoint", "name"),
    Column("met", "met"),
    Column("success", lambda one: f"{percent(one.success_rate)} of {percent(one.target.success)}"),
    Column("p95", lambda one: f"{duration(one.p95_seconds)} of {duration(one.target.p95_seconds)}"),
    Column("oldest", lambda one: f"{duration(one.oldest_seconds)} of {duration(one.target.oldest_seconds)}"),
    Column("budget left", lambda one: percent(one.budget_left)),
    Column("burn 1h", lambda one: _rounded(one.burn["one_hour"])),
    Column("6h", lambda one: _rounded(one.burn["six_hours"])),
    Column("3d", lambda one: _rounded(one.burn["three_days"])),
    Column("waits since", "waiting_since", whole=True, spare=True),
)


@remote(slo, "list")
def list_slo(session: Session, paging: Paging) -> None:
    """Compare each endpoint with its target over 30 days, and show how fast it uses its error budget."""
    session.show_page(paging.fetch(session.client.slo.page), "endpoints", _SLO, "There are no endpoints.")


@remote(slo)
def default(session: Session) -> None:
    """Show the default target, which applies to endpoints without a target of their own."""
    session.output.answer(session.client.slo.default())


@remote(slo, "set-default")
def set_default(
    session: Session,
    success: Annotated[
        float, typer.Argument(metavar="SHARE", parser=Share, help="The share of deliveries that must succeed: 99.9%")
    ],
    p95: Annotated[
        float,
        typer.Argument(
            metavar="SPAN", parser=DurationSeconds, help="The time within which 95 % of deliveries must succeed: 30s"
        ),
    ],
    oldest: Annotated[
        float | None,
        typer.Argument(
            metavar="[SPAN]", parser=DurationSeconds, help="The maximum age of waiting deliveries. [default: 1h]"
        ),
    ] = None,
) -> None:
    """Set the default target, which applies to endpoints without a target of their own.

    Example: `doorstep slo set-default 99.9% 30s 2h`
    """
    session.output.answer(session.client.slo.set_default(success=success, p95_seconds=p95, oldest_seconds=oldest))


# -- workers -----------------------------------------------------------------------------------------------

_WORKERS = columns(
    "worker state slots tasks seen_at",
    spare="version since handlers",
    worker="name",
    slots=lambda one: f"{one.places_in_use} / {one.places}",
    since="started_at",
)


@remote(commands)
def workers(session: Session) -> None:
    """Show workers and their load, including workers lost within the last day (default organization only)."""
    session.show_page(session.client.workers.page(), "workers", _WORKERS, "No worker is running.")


# -- tail --------------------------------------------------------------------------------------------------

What: TypeAlias = Literal["event", "retry", "dead_letter"]

_QUEUE_MAX = 1_000
"""The maximum number of deliveries that one poll reads from the retry queue, soonest retry first."""
_NEW_MAX = 5_000
"""The maximum number of new events that one poll reads, so that a flood of events cannot delay all output."""
_INTERVAL: Any = "1s"
_INTERVAL_MIN_SECONDS = 0.1


@remote(commands)
def tail(
    session: Session,
    event_type: EventType = None,
    endpoint: OfEndpoint = None,
    failures: Annotated[bool, flag("--failures", "Only failures: scheduled retries and dead letters.")] = False,
    interval: Annotated[float, option("--interval", "SPAN", "How often to poll.", DurationSeconds)] = _INTERVAL,
    lasting: Annotated[
        float | None, option("--for", "SPAN", "Stop after this time. [default: never]", DurationSeconds)
    ] = None,
) -> None:
    """Follow events and deliveries as they change. Ctrl-C stops it.

    Example: `doorstep tail --type 'order.*' --failures`
    """
    filters = {"event_type": event_type, "endpoint_id": session.endpoint_id(endpoint)}
    poller = _Poller(session.client, filters, not failures and endpoint is None, Seen())
    end = math.inf if lasting is None else time.monotonic() + lasting
    with suppress(KeyboardInterrupt):
        _follow(poller, session.output, max(interval, _INTERVAL_MIN_SECONDS), end)


def _follow(poller: _Poller, output: Output, interval_seconds: float, end: float) -> None:
    for _ in poller.poll(first=True):
        pass  # objects that already exist do not count as changes
    say("Following; Ctrl-C stops it")
    while time.monotonic() < end:
        time.sleep(interval_seconds)
        for change in poller.poll():
            output.line({"what": change.what, **msgspec.to_builtins(change.item)}, _change_text(change))


class _Poller(NamedTuple):
    """Polls the lists and finds changes.

    Each poll reads all new events, the start of the retry queue and the newest dead letters. To find changed events, it
    also rereads the newest 200 events. Two changes of the same object between two polls are printed as one.
    """

    client: Client
    filters: dict[str, Any]
    events_too: bool
    seen: Seen

    def poll(self, *, first: bool = False) -> Iterator[Change]:
        """The changes since the last poll; changed events come in the order of their creation.

        Events are read after deliveries but printed before them, so that an event always precedes its failures.
        """
        letters = self.client.dead_letters.page(limit=PAGE_MAX, **self.filters)
        queue = list(islice(self.client.retry_queue.each(limit=PAGE_MAX, **self.filters), _QUEUE_MAX))
        if self.events_too:
            yield from self.seen.changes("event", reversed(self._recent_events(first)))
        yield from self.seen.changes("retry", queue)
        yield from self.seen.changes("dead_letter", reversed(letters.items))

    def _recent_events(self, first: bool) -> list[EventItem]:
        """The newest page of events, and further pages if more arrived since the last poll; newest first."""
        query = {"limit": PAGE_MAX, "event_type": self.filters["event_type"]}
        page = self.client.events.page(**query)
        found = list(page)
        while not first and page.pagination.has_more and len(found) < _NEW_MAX:
            if found and self.seen.knows(found[-1].event_id):
                break
            page = self.client.events.page(**query, cursor=page.pagination.cursor)
            found += page
        return found


_HEADS = {"event": "event", "retry": "failed", "dead_letter": "dead letter"}


def _change_text(change: Change) -> Text:
    """One line: the current time, the item, and its state."""
    from rich.text import Text

    item: Any = change.item
    text = Text()
    text.append(_clock(datetime.now(UTC)), style="dim")
    text.append(f"  {_HEADS[change.what]:13}", style="bold")
    text.append(f"{item.event_id}  {visible(item.event_type)}  ")
    if change.what == "event":
        return text.append(cell(item.status))
    text.append(visible(f"{item.endpoint_name}: {item.error or ''} {item.error_reason or ''}").strip(), style="red")
    if change.what == "retry":
        text.append(f"  retries {item.retry_count}, next {_clock(item.next_retry_at)}", style="yellow")
    return text


def _clock(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%H:%M:%S")


class Change(NamedTuple):
    """An item that is new or has changed since the last poll."""

    what: What
    item: EventItem | QueuedDelivery | DeadLetter


_REMEMBERED_MAX = 20_000
"""The maximum number of items whose state is remembered. The least recently seen items are dropped first."""


class Seen:
    """The state in which each item was last seen, for a limited number of items."""

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._states: OrderedDict[object, object] = OrderedDict()
        self._remembered_max = remembered_max

    def knows(self, key: object) -> bool:
        return key in self._states

    def changes(self, what: What, items: Iterable[Any]) -> Iterator[Change]:
        """The items that are new or have changed: events with a new status, deliveries that failed again."""
        for item in items:
            match what:
                case "event":
                    is_new = self.is_new(item.event_id, item.status)
                case "retry":
                    is_new = item.state == "pending" and self.is_new(("retry", item.delivery_id), item.attempts)
                case "dead_letter":
                    is_new = self.is_new(("dead", item.delivery_id), item.settled_at)
            if is_new:
                yield Change(what, item)

    def is_new(self, key: object, state: object) -> bool:
        """Whether the item's state differs from the state last seen. Also stores the new state."""
        before = self._states.pop(key, None)
        self._states[key] = state
        if len(self._states) > self._remembered_max:
            self._states.popitem(last=False)
        return before != state
