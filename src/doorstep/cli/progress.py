"""The progress of a bulk operation, as a bar on standard error, which is left out where nobody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from doorstep.cli.remote import Session

if TYPE_CHECKING:
    from doorstep.schemas.bulk import Bulk

_FOR_EVER_SECONDS = 10 * 365 * 86_400.0
_PARTS = (
    TextColumn("{task.description}", markup=False),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)


def watched(session: Session, bulk_id: str) -> Bulk:
    """Show how it goes until it has ended."""
    console = Console(stderr=True, quiet=session.output.as_json)
    with Progress(*_PARTS, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        def show(seen: Bulk) -> None:
            words = f"{seen.kind} {seen.state}: {seen.progress}"
            done = seen.refused + seen.succeeded + seen.failed
            progress.update(task, description=words, total=seen.total, completed=done)

        return session.client.bulk.wait(bulk_id, _FOR_EVER_SECONDS, on_progress=show)
