"""`doorstep keys`, `orgs` and `audit`: who may do what, and who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.options import Future, Yes
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import REMOTE_PANEL, Paging, Session, gather, remote
from doorstep.schemas.accounts import RoleName

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")
orgs = typer.Typer(no_args_is_help=True, help="Make and list organizations (admins of the default one only).")
looking = typer.Typer()

_SHOWN_ONCE = "The key is shown only this once."


@remote(keys, "list")
def list_keys(session: Session, paging: Paging) -> None:
    """List the keys of the organization; the keys themselves are kept nowhere."""
    rows = gather(session.client.keys.page, paging)
    rows.show(session.output, "keys", columns.KEYS, "There are no keys.")


@remote(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[RoleName, typer.Option("--role", help="What it may do.")],
    expires: Annotated[
        datetime | None, typer.Option("--expires", metavar="TIME", parser=Future, help="Refuse it after this.")
    ] = None,
) -> None:
    """Make a key.

    Example: `doorstep keys create billing --role publisher`
    """
    made = session.client.keys.create(name, role, expires_at=expires)
    session.output.answer(made)
    session.output.note(_SHOWN_ONCE)


@remote(keys)
def revoke(
    session: Session,
    key_id: Annotated[str, typer.Argument(help="The key's id; `keys list` shows it.")],
    yes: Yes = False,
) -> None:
    """Refuse a key from now on."""
    confirm(session.output, f"Revoke key {key_id}?", yes)
    session.client.keys.revoke(key_id)
    session.output.line({"key_id": key_id, "revoked": True}, f"{key_id}  revoked")


@remote(orgs, "list")
def list_orgs(session: Session, paging: Paging) -> None:
    """List the organizations."""
    rows = gather(session.client.orgs.page, paging)
    rows.show(session.output, "orgs", columns.ORGS, "There are no organizations.")


@remote(orgs, "create")
def create_org(session: Session, name: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Make an organization, with its first admin key."""
    made = session.client.orgs.create(name)
    if session.output.as_json:
        session.output.json(made)
        return
    session.output.answer({"org_id": made.org_id, "name": made.name, "admin key": made.admin_key.key})
    session.output.note(_SHOWN_ONCE)


@remote(looking, rich_help_panel=REMOTE_PANEL)
def audit(
    session: Session,
    paging: Paging,
    actor: Annotated[str | None, typer.Option("--actor", help="Only what this one did.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Only this action.")] = None,
) -> None:
    """Show who did what, when, to which things, with what result; newest first."""
    rows = gather(session.client.audit.page, paging, actor=actor, action=action)
    rows.show(session.output, "audit", columns.AUDIT, "Nobody has done anything yet.")
