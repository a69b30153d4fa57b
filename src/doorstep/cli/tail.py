"""`doorstep tail`: follows events and deliveries by polling.

A poll reads all new events, the newest 200 events again to find changes, the start of the retry queue, and the newest
dead letters. Two changes of the same object between two polls are printed as one.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import typer

from doorstep.cli.commands import PAGE_MAX, Session, remote
from doorstep.cli.options import DurationSeconds, EventType, OfEndpoint, option
from doorstep.cli.output import Output, cell, say, visible

if TYPE_CHECKING:
    from rich.text import Text

    from doorstep.client import Client
    from doorstep.schemas.deliveries import DeadLetter, QueuedDelivery
    from doorstep.schemas.events import EventItem


commands = typer.Typer()

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
    failures: Annotated[
        bool, typer.Option("--failures", help="Only failures: scheduled retries and dead letters.")
    ] = False,
    interval: Annotated[float, option("--interval", "SPAN", "How often to poll.", DurationSeconds)] = _INTERVAL,
    duration: Annotated[
        float | None, option("--for", "SPAN", "Stop after this time. [default: never]", DurationSeconds)
    ] = None,
) -> None:
    """Follow events and deliveries as they change. Ctrl-C stops it.

    Example: `doorstep tail --type 'order.*' --failures`
    """
    poller = _Poller(session.client, event_type, session.endpoint_id(endpoint), failures)
    end = math.inf if duration is None else time.monotonic() + duration
    with suppress(KeyboardInterrupt):
        _follow(poller, session.output, max(interval, _INTERVAL_MIN_SECONDS), end)


def _follow(poller: _Poller, output: Output, interval_seconds: float, end: float) -> None:
    for _ in poller.poll(first=True):
        pass  # objects that already exist do not count as changes
    say("Following; Ctrl-C stops it")
    while time.monotonic() < end:
        time.sleep(interval_seconds)
        for change in poller.poll():
            output.line(
                {"what": change.what, **msgspec.to_builtins(change.item)}, change_text(change, datetime.now(UTC))
            )


class _Poller:
    """Polls the lists and finds changes."""

    def __init__(self, client: Client, event_type: str | None, endpoint_id: str | None, failures: bool) -> None:
        self._client = client
        self._filters: dict[str, Any] = {"event_type": event_type, "endpoint_id": endpoint_id}
        self._events_too = not failures and endpoint_id is None
        self._seen = Seen()

    def poll(self, *, first: bool = False) -> Iterator[Change]:
        """The changes since the last poll, events in the order of their creation.

        Events are read last and printed first, so that an event always precedes its failures.
        """
        letters = self._client.dead_letters.page(limit=PAGE_MAX, **self._filters)
        queue = list(islice(self._client.retry_queue.each(limit=PAGE_MAX, **self._filters), _QUEUE_MAX))
        if self._events_too:
            yield from self._seen.changes("event", reversed(self._recent_events(first)))
        yield from self._seen.changes("retry", queue)
        yield from self._seen.changes("dead_letter", reversed(letters.items))

    def _recent_events(self, first: bool) -> list[EventItem]:
        """The newest page of events, and further pages if more arrived since the last poll; newest first."""
        query = {"limit": PAGE_MAX, "event_type": self._filters["event_type"]}
        page = self._client.events.page(**query)
        found = list(page)
        while not first and page.pagination.has_more and len(found) < _NEW_MAX and not self._reaches_seen(found):
            page = self._client.events.page(**query, cursor=page.pagination.cursor)
            found += page
        return found

    def _reaches_seen(self, found: list[EventItem]) -> bool:
        return bool(found) and self._seen.knows(found[-1].event_id)


def change_text(change: Change, seen_at: datetime) -> Text:
    """One line: when the change was seen, the item, and its state."""
    from rich.text import Text

    item: Any = change.item
    text = Text()
    text.append(_clock(seen_at), style="dim")
    text.append(f"  {_HEADS[change.what]:13}", style="bold")
    text.append(f"{item.event_id}  {visible(item.event_type)}  ")
    if change.what == "event":
        return text.append(cell(item.status))
    text.append(visible(f"{item.endpoint_name}: {item.error or ''} {item.error_reason or ''}").strip(), style="red")
    if change.what == "retry":
        text.append(f"  retries {item.retry_count}, next {_clock(item.next_retry_at)}", style="yellow")
    return text


_HEADS = {"event": "event", "retry": "failed", "dead_letter": "dead letter"}


def _clock(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%H:%M:%S")


class Change(NamedTuple):
    """An item that is new or has changed since the last poll."""

    what: What
    item: EventItem | QueuedDelivery | DeadLetter


_REMEMBERED_MAX = 20_000
"""The maximum number of states kept. The least recently seen are dropped first."""


class Seen:
    """The last seen state of each item, up to a maximum number of items."""

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
        """Whether the state differs from the last one seen. Also stores the new state."""
        before = self._states.pop(key, None)
        self._states[key] = state
        if len(self._states) > self._remembered_max:
            self._states.popitem(last=False)
        return before != state
