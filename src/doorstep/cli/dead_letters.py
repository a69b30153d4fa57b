"""`doorstep dead-letters`: what the machine has given up on, and how to put it right."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from doorstep.cli import columns
from doorstep.cli.bulk_actions import Act, How, Which, work
from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.options import EventType, OfEndpoint, Since, Until
from doorstep.cli.prompts import read_payload
from doorstep.cli.remote import Paging, Session, gather, remote
from doorstep.errors import ConfigError
from doorstep.schemas.deliveries import DeadStatus

app = typer.Typer(no_args_is_help=True, help="Work on what the machine has given up on.")

_ALL_WELL = "No failed events. All integrations healthy."

State = Annotated[DeadStatus | None, typer.Option("--status", help="The fresh ones, or those untouched for a week.")]
Cause = Annotated[
    str | None, typer.Option("--cause", metavar="CAUSE", help="Only those of this cause; `groups` lists them.")
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", metavar="PAYLOAD", help="Another payload, for one id: JSON, @file, or - for stdin."),
]
Canary = Annotated[bool, typer.Option("--canary", help="Try one of each cause first; go on only where it succeeds.")]


class Filters(NamedTuple):
    status: State = None
    event_type: EventType = None
    endpoint: OfEndpoint = None
    cause: Cause = None
    since: Since = None
    until: Until = None

    def query(self, session: Session) -> dict[str, object]:
        """By the names of the API."""
        return {
            "status": self.status,
            "event_type": self.event_type,
            "endpoint_id": endpoint_id_of(session.client, self.endpoint),
            "cause": self.cause,
            "died_from": self.since,
            "died_before": self.until,
        }


@remote(app, "list")
def list_letters(session: Session, filters: Filters, paging: Paging) -> None:
    """List them, newest first.

    Example: `doorstep dead-letters list --endpoint shop --since 1d`
    """
    rows = gather(session.client.dead_letters.page, paging, **filters.query(session))
    rows.show(session.output, "dead_letters", columns.DEAD_LETTERS, _ALL_WELL)


@remote(app)
def groups(session: Session) -> None:
    """List the causes: hundreds of dead letters are often three of them."""
    page = session.client.dead_letters.groups()
    whole = {"groups": page.items, "pagination": page.pagination}
    session.output.listing(whole, page, columns.GROUPS, _ALL_WELL)


@remote(app)
def retry(
    session: Session, which: Which, filters: Filters, how: How, payload: Payload = None, canary: Canary = False
) -> int:
    """Try dead letters again, with all their retries: one, several, those that match, or all.

    Examples: `doorstep dead-letters retry 0193…`, `doorstep dead-letters retry --cause 1f3a… --canary --rate 50`,
    `doorstep dead-letters retry 0193… --payload @corrected.json`
    """
    letters = session.client.dead_letters
    edited = _edited(which, payload)
    act = Act(
        "retry",
        "will be retried in a few seconds",
        lambda one: (
            letters.retry(one, reason=how.reason)
            if edited is None
            else letters.edit_and_retry(one, edited, reason=how.reason)
        ),
        lambda many: letters.bulk_retry(many, rate_per_second=how.rate, canary=canary or None, reason=how.reason),
        letters.preview,
    )
    return work(session, which, filters.query(session), act, how)


@remote(app)
def resolve(session: Session, which: Which, filters: Filters, how: How) -> int:
    """Say that dead letters need no delivery.

    Example: `doorstep dead-letters resolve --cause 1f3a… --reason 'delivered by hand'`
    """
    letters = session.client.dead_letters
    act = Act(
        "resolve",
        "is resolved",
        lambda one: letters.resolve(one, reason=how.reason),
        lambda many: letters.bulk_resolve(many, rate_per_second=how.rate, reason=how.reason),
        letters.preview,
    )
    return work(session, which, filters.query(session), act, how)


@remote(app)
def delete(session: Session, which: Which, filters: Filters, how: How) -> int:
    """Delete dead letters; their attempt logs stay.

    Example: `doorstep dead-letters delete --status archived --yes`
    """
    letters = session.client.dead_letters
    act = Act(
        "delete",
        "is deleted",
        lambda one: _deleted(session, one),
        lambda many: letters.bulk_delete(many, rate_per_second=how.rate, reason=how.reason),
        letters.preview,
        final=True,
    )
    return work(session, which, filters.query(session), act, how)


def _edited(which: Which, payload: str | None) -> bytes | None:
    if payload is None:
        return None
    if len(which.ids or []) != 1:
        raise ConfigError(f"--payload is for one dead letter, got {len(which.ids or [])} ids; name exactly one")
    return read_payload("--payload", payload)


def _deleted(session: Session, delivery_id: str) -> object:
    session.client.dead_letters.delete(delivery_id)
    return {"delivery_id": delivery_id, "deleted": True}
