"""`doorstep console`: the way from a terminal into the console."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli.remote import REMOTE_PANEL, Session, remote

app = typer.Typer()


@remote(app, rich_help_panel=REMOTE_PANEL)
def console(
    session: Session,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser of this machine too.")] = False,
) -> None:
    """Print a link that signs you in to the console with your key, once, within 30 minutes."""
    link = session.client.sign_in_links.create()
    url = session.url.rstrip("/") + link.path
    session.output.line({"url": url, "expires_at": link.expires_at}, url)
    if open_it and typer.launch(url):
        session.output.note("There is no browser to open it with; open it yourself.")
