"""`doorstep deliveries`: one event owed to one endpoint, and all that happened to it."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.remote import Session, remote

app = typer.Typer(no_args_is_help=True, help="See one delivery: how it stands, its attempt log, its history.")

DeliveryId = Annotated[str, typer.Argument(help="The delivery's id.")]


@remote(app)
def show(session: Session, delivery_id: DeliveryId) -> None:
    """Show how a delivery stands."""
    session.output.answer(session.client.deliveries.read(delivery_id))


@remote(app)
def attempts(session: Session, delivery_id: DeliveryId) -> None:
    """Show its attempt log: every try with its answer or error. With --json, headers and bodies too."""
    page = session.client.deliveries.attempts(delivery_id)
    whole = {"attempts": page.items, "pagination": page.pagination}
    session.output.listing(whole, page, columns.ATTEMPTS, "It has not been tried yet.")


@remote(app)
def history(session: Session, delivery_id: DeliveryId) -> None:
    """Show its life, one line a transition."""
    page = session.client.deliveries.history(delivery_id)
    whole = {"history": page.items, "pagination": page.pagination}
    session.output.listing(whole, page, columns.HISTORY, "It has no history.")
