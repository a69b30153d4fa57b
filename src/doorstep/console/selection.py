"""What was chosen in a list to be acted upon: rows that were ticked, or all that match its filter.

All that match means all there were when the question was asked: what comes later, nobody has seen or counted. So the
question carries that instant, as a bound of the filter.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Instant, to_iso
from doorstep.console.fields import EVENT_FILTER, LETTER_FILTER, QUEUE_FILTER, Fields, events_of, letters_of, queue_of
from doorstep.console.request import PageRequest
from doorstep.engine.directory import living
from doorstep.errors import InvalidInput
from doorstep.model.bulk import Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES, States
from doorstep.model.endpoint import Endpoint


class Chosen(NamedTuple):
    selection: Selection
    fields: Fields
    """What a form says to choose the same again."""


def of_queue(fields: Fields, now: Instant) -> Chosen:
    """Of the retry queue. How long ago something failed is counted from the question, not from the answer."""
    if not fields.flag("all"):
        return _ticked(fields, WAITING_STATES)
    before = to_iso(_earlier(queue_of(fields, now).failed_before, now))
    bound = fields.only(*QUEUE_FILTER).having(age=None, failed_before=before)
    return Chosen(Selection(queue=queue_of(bound, now)), bound.having(all="yes"))


def of_letters(fields: Fields, now: Instant) -> Chosen:
    """Of the dead letters."""
    if not fields.flag("all"):
        return _ticked(fields, DEAD_STATES)
    before = to_iso(_earlier(letters_of(fields).died_before, now))
    bound = fields.only(*LETTER_FILTER).having(died_before=before)
    return Chosen(Selection(letters=letters_of(bound)), bound.having(all="yes"))


def of_events(fields: Fields, now: Instant) -> Chosen:
    """Of the events that were accepted in a range of time."""
    wanted = events_of(fields)
    if wanted.created_from is None or wanted.created_before is None:
        missing = "created_from" if wanted.created_from is None else "created_before"
        raise InvalidInput(missing, "must be given: nobody replays everything by leaving it out")
    if wanted.created_before <= wanted.created_from:
        raise InvalidInput("created_before", "must be later than created_from")
    bound = fields.only(*EVENT_FILTER).having(created_before=to_iso(_earlier(wanted.created_before, now)))
    return Chosen(Selection(events=events_of(bound)), bound)


def _ticked(fields: Fields, states: States) -> Chosen:
    """In the states of the list. Nobody acts on everything by leaving it out."""
    if ids := fields.ids("id"):
        return Chosen(Selection(delivery_ids=tuple(dict.fromkeys(ids)), states=states), fields.only("id"))
    raise InvalidInput("id", "nothing is ticked; tick some rows, or choose all that match")


def _earlier(bound: Instant | None, now: Instant) -> Instant:
    return now if bound is None else min(bound, now)


ENDPOINTS_MAX = 500


class Endpoints(NamedTuple):
    items: list[tuple[UUID, str]]
    """Ids and names."""
    cut: bool
    """Whether there are more of them."""


async def endpoints_of(visit: PageRequest) -> Endpoints:
    """The endpoints of the organization by name; of very many only the first, and the one that is chosen."""
    page = await visit.doorstep.components.reader.endpoints(visit.org_id, None, None, ENDPOINTS_MAX)
    found = {one.endpoint_id: one.name for one in page.items}
    chosen = visit.query.id("endpoint_id")
    if chosen is not None and chosen not in found:
        found[chosen] = (await visit.doorstep.components.reader.endpoint(visit.org_id, chosen)).name
    return Endpoints(sorted(found.items(), key=lambda one: one[1].casefold()), cut=page.next is not None)


async def endpoint_of(visit: PageRequest) -> Endpoint:
    """The one in the path, unless it was deleted."""
    return living(await visit.doorstep.components.reader.endpoint(visit.org_id, visit.id("endpoint_id")))


def place_of(endpoint: Endpoint) -> str:
    """Where its page is."""
    return f"/console/endpoints/{endpoint.endpoint_id}"
