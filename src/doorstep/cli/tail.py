"""`doorstep tail`: follows events and deliveries live, by looking at the lists again and again.

A look takes in all new events, the newest 200 again for their changes, the head of the retry queue and the newest dead
letters. What changes twice between two looks is told once.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.options import EventType, OfEndpoint, parsed_by, span_seconds
from doorstep.cli.output import Output, say, visible
from doorstep.cli.remote import PAGE_MAX, REMOTE_PANEL, Session, remote

if TYPE_CHECKING:
    from rich.text import Text

    from doorstep.schemas.deliveries import DeadLetter, QueuedDelivery
    from doorstep.schemas.events import EventItem


app = typer.Typer()

_QUEUE_MAX = 1_000
"""How many deliveries of the retry queue one look goes through, the next to be tried first."""
_NEW_MAX = 5_000
"""How many new events one look takes in at most, so that a flood does not keep it from showing anything."""
_INTERVAL: Any = "1s"
_INTERVAL_MIN_SECONDS = 0.1


@remote(app, rich_help_panel=REMOTE_PANEL)
def tail(
    session: Session,
    event_type: EventType = None,
    endpoint: OfEndpoint = None,
    failures: Annotated[
        bool, typer.Option("--failures", help="Only failures: retries to come and dead letters.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SPAN", parser=parsed_by(span_seconds), help="Look this often.")
    ] = _INTERVAL,
    duration: Annotated[
        float | None,
        typer.Option("--for", metavar="SPAN", parser=parsed_by(span_seconds), help="End after this. [default: never]"),
    ] = None,
) -> None:
    """Follow events and deliveries as they change; Ctrl-C ends it.

    Example: `doorstep tail --type 'order.*' --failures`
    """
    lists = _Lists(session, event_type, endpoint_id_of(session.client, endpoint), failures)
    end = math.inf if duration is None else time.monotonic() + duration
    with suppress(KeyboardInterrupt):
        _follow(lists, session.output, max(interval, _INTERVAL_MIN_SECONDS), end)


def _follow(lists: _Lists, output: Output, interval_seconds: float, end: float) -> None:
    for _ in lists.look():
        pass  # what is there already is no news
    say("Following; Ctrl-C ends it")
    while time.monotonic() < end:
        time.sleep(interval_seconds)
        for change in lists.look():
            output.line({"what": change.what, **msgspec.to_builtins(change.thing)}, words(change, datetime.now(UTC)))


class _Lists:
    """The lists that are looked at, and what was seen in them."""

    def __init__(self, session: Session, event_type: str | None, endpoint_id: str | None, failures: bool) -> None:
        self._client = session.client
        self._event_type = event_type
        self._endpoint_id = endpoint_id
        self._events_too = not failures and endpoint_id is None
        self._watcher = Watcher()
        self._looked = False

    def look(self) -> Iterator[Change]:
        """What has changed since the last look, events in the order of their creation.

        They are told first and read last: so no failure is told of an event that was not.
        """
        filters: dict[str, Any] = {"event_type": self._event_type, "endpoint_id": self._endpoint_id}
        letters = self._client.dead_letters.page(limit=PAGE_MAX, **filters)
        queue = list(islice(self._client.retry_queue.each(limit=PAGE_MAX, **filters), _QUEUE_MAX))
        if self._events_too:
            yield from self._watcher.events(reversed(self._recent_events()))
        yield from self._watcher.queue(queue)
        yield from self._watcher.letters(reversed(letters.items))

    def _recent_events(self) -> list[EventItem]:
        """The newest page, and all that came since the last look if that is more; newest first."""
        page = self._client.events.page
        got = page(limit=PAGE_MAX, event_type=self._event_type)
        found = list(got)
        while self._looked and got.pagination.has_more and self._all_new(found):
            got = page(limit=PAGE_MAX, event_type=self._event_type, cursor=got.pagination.cursor)
            found += got
        self._looked = True
        return found

    def _all_new(self, found: list[EventItem]) -> bool:
        return len(found) < _NEW_MAX and not (found and self._watcher.knows(found[-1]))


def words(change: Change, seen_at: datetime) -> Text:
    """One line: when it was seen, what it is, and how it stands."""
    from rich.text import Text

    from doorstep.cli.drawing import cell

    thing: Any = change.thing
    text = Text()
    text.append(_clock(seen_at), style="dim")
    text.append(f"  {_HEADS[change.what]:13}", style="bold")
    text.append(f"{thing.event_id}  {visible(thing.event_type)}  ")
    if change.what == "event":
        return text.append(cell(thing.status))
    text.append(visible(f"{thing.endpoint_name}: {thing.error or ''} {thing.error_reason or ''}").strip(), style="red")
    if change.what == "retry":
        text.append(f"  retries {thing.retry_count}, next {_clock(thing.next_retry_at)}", style="yellow")
    return text


_HEADS = {"event": "event", "retry": "failed", "dead_letter": "dead letter"}


def _clock(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%H:%M:%S")


_REMEMBERED_MAX = 20_000
"""Things whose last state is kept in mind; those seen longest ago are forgotten first."""


class Change(NamedTuple):
    """Something that is not as it was at the last look."""

    what: str
    """`event`, `retry` or `dead_letter`."""
    thing: EventItem | QueuedDelivery | DeadLetter


class Memory:
    """The last state of what has been seen, bounded."""

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._states: OrderedDict[object, object] = OrderedDict()
        self._remembered_max = remembered_max

    def knows(self, key: object) -> bool:
        return key in self._states

    def is_news(self, key: object, state: object) -> bool:
        """Whether this is another state than the last one seen of it; it is remembered from now on."""
        before = self._states.pop(key, None)
        self._states[key] = state
        if len(self._states) > self._remembered_max:
            self._states.popitem(last=False)
        return before != state


class Watcher:
    """Compares each look with the ones before."""

    def __init__(self) -> None:
        self._memory = Memory()

    def knows(self, event: EventItem) -> bool:
        """Whether an earlier look has had this event."""
        return self._memory.knows(event.event_id)

    def events(self, seen: Iterable[EventItem]) -> Iterator[Change]:
        """Events that are new, or stand elsewhere than before."""
        for event in seen:
            if self._memory.is_news(event.event_id, event.status):
                yield Change("event", event)

    def queue(self, seen: Iterable[QueuedDelivery]) -> Iterator[Change]:
        """Deliveries that have failed once more and will be tried again."""
        for delivery in seen:
            if delivery.state == "pending" and self._memory.is_news(("retry", delivery.delivery_id), delivery.attempts):
                yield Change("retry", delivery)

    def letters(self, seen: Iterable[DeadLetter]) -> Iterator[Change]:
        """Deliveries that have been given up."""
        for letter in seen:
            if self._memory.is_news(("dead", letter.delivery_id), letter.settled_at):
                yield Change("dead_letter", letter)
