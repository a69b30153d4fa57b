"""`doorstep retry-queue`: what failed at least once and will be tried again."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from doorstep.cli import columns
from doorstep.cli.bulk_actions import Act, How, Which, work
from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.options import EventType, OfEndpoint, parsed_by, span_seconds
from doorstep.cli.remote import Paging, Session, gather, remote
from doorstep.schemas.deliveries import QueueStatus

app = typer.Typer(no_args_is_help=True, help="Work on what failed and will be tried again.")

State = Annotated[QueueStatus | None, typer.Option("--status", help="Those that wait, or those in progress.")]
OlderThan = Annotated[
    float | None,
    typer.Option("--older-than", metavar="SPAN", parser=parsed_by(span_seconds), help="First failed so long ago: 1h"),
]


class Filters(NamedTuple):
    status: State = None
    event_type: EventType = None
    endpoint: OfEndpoint = None
    older_than: OlderThan = None

    def query(self, session: Session) -> dict[str, object]:
        """By the names of the API."""
        return {
            "status": self.status,
            "event_type": self.event_type,
            "endpoint_id": endpoint_id_of(session.client, self.endpoint),
            "older_than_seconds": self.older_than,
        }


@remote(app, "list")
def list_queue(session: Session, filters: Filters, paging: Paging) -> None:
    """List them, the next retry first.

    Example: `doorstep retry-queue list --endpoint shop --older-than 1h`
    """
    rows = gather(session.client.retry_queue.page, paging, **filters.query(session))
    rows.show(session.output, "deliveries", columns.QUEUED, "Nothing waits for a retry.")


@remote(app)
def retry(session: Session, which: Which, filters: Filters, how: How) -> int:
    """Try deliveries now: one, several, those that match, or all.

    Examples: `doorstep retry-queue retry 0193…`, `doorstep retry-queue retry --endpoint shop --rate 10`,
    `doorstep retry-queue retry --all --preview`
    """
    queue = session.client.retry_queue
    act = Act(
        "retry",
        "is due now",
        lambda one: queue.retry(one, reason=how.reason),
        lambda many: queue.bulk_retry(many, rate_per_second=how.rate, reason=how.reason),
        queue.preview,
    )
    return work(session, which, filters.query(session), act, how)


@remote(app)
def skip(session: Session, which: Which, filters: Filters, how: How) -> int:
    """Give deliveries up: they move to the dead letters.

    Example: `doorstep retry-queue skip --type 'report.*' --reason 'no longer wanted'`
    """
    queue = session.client.retry_queue
    act = Act(
        "skip",
        "is a dead letter now",
        lambda one: queue.skip(one, reason=how.reason),
        lambda many: queue.bulk_skip(many, rate_per_second=how.rate, reason=how.reason),
        queue.preview,
        final=True,
    )
    return work(session, which, filters.query(session), act, how)
