"""`doorstep workers`: which processes deliver."""

from __future__ import annotations

import typer

from doorstep.cli import columns
from doorstep.cli.remote import REMOTE_PANEL, Rows, Session, remote

looking = typer.Typer()


@remote(looking, rich_help_panel=REMOTE_PANEL)
def workers(session: Session) -> None:
    """Show which processes deliver, how busy they are, and which were lost within a day (default organization only)."""
    page = session.client.workers.page()
    rows = Rows(list(page.items), page.pagination)
    rows.show(session.output, "workers", columns.WORKERS, "No process delivers.")
