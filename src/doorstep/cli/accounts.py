"""`doorstep keys`, `orgs`, `audit` and `console`: API keys, organizations, the audit log, and sign-in links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from doorstep.cli.commands import Paging, Session, remote
from doorstep.cli.options import Future, Yes, option
from doorstep.cli.output import columns
from doorstep.schemas.accounts import RoleName

keys = typer.Typer()
orgs = typer.Typer()
commands = typer.Typer()

_SHOWN_ONCE = "The key is shown only once."
_KEYS = columns("key_id name role prefix", spare="created_at expires_at revoked_at")
_ORGS = columns("org_id name created_at")
_AUDIT = columns("at actor action result", spare="reason subjects")


@remote(keys, "list")
def list_keys(session: Session, paging: Paging) -> None:
    """List the organization's keys. The keys themselves are stored nowhere."""
    page = paging.fetch(session.client.keys.page)
    session.show_page(page, "keys", _KEYS, "There are no keys.")


@remote(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[RoleName, typer.Option("--role", help="What it may do.")],
    expires: Annotated[datetime | None, option("--expires", "TIME", "When it stops working.", Future)] = None,
) -> None:
    """Create a key.

    Example: `doorstep keys create billing --role publisher`
    """
    session.output.answer(session.client.keys.create(name, role, expires_at=expires))
    session.output.note(_SHOWN_ONCE)


@remote(keys)
def revoke(
    session: Session,
    key_id: Annotated[str, typer.Argument(help="The key's id; `keys list` shows it.")],
    yes: Yes = False,
) -> None:
    """Revoke a key. It stops working at once."""
    session.output.confirm(f"Revoke key {key_id}?", yes)
    session.client.keys.revoke(key_id)
    session.output.line({"key_id": key_id, "revoked": True}, f"{key_id}  revoked")


@remote(orgs, "list")
def list_orgs(session: Session, paging: Paging) -> None:
    """List organizations."""
    page = paging.fetch(session.client.orgs.page)
    session.show_page(page, "orgs", _ORGS, "There are no organizations.")


@remote(orgs, "create")
def create_org(session: Session, name: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Create an organization with its first admin key."""
    created = session.client.orgs.create(name)
    if session.output.as_json:
        session.output.json(created)
        return
    session.output.answer({"org_id": created.org_id, "name": created.name, "admin key": created.admin_key.key})
    session.output.note(_SHOWN_ONCE)


@remote(commands)
def audit(
    session: Session,
    paging: Paging,
    actor: Annotated[str | None, typer.Option("--actor", help="Only actions of this actor.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Only this action.")] = None,
) -> None:
    """Show the audit log: who did what, when, to which objects, with what result; newest first."""
    page = paging.fetch(session.client.audit.page, actor=actor, action=action)
    session.show_page(page, "audit", _AUDIT, "The audit log is empty.")


@remote(commands)
def console(
    session: Session,
    open_it: Annotated[bool, typer.Option("--open", help="Also open it in this machine's browser.")] = False,
) -> None:
    """Print a link that signs you in to the console with your key; valid once, for 30 minutes."""
    link = session.client.sign_in_links.create()
    url = session.url.rstrip("/") + link.path
    session.output.line({"url": url, "expires_at": link.expires_at}, url)
    if open_it and typer.launch(url):
        session.output.note("No browser was found; open it yourself.")
