"""`doorstep channels`: where people are told of alerts."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.endpoint_names import complete_endpoint, endpoint_id_of
from doorstep.cli.options import Yes
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import Rows, Session, remote
from doorstep.schemas.alerts import ChannelKindName

channels = typer.Typer(no_args_is_help=True, help="Make, test, resume and delete the channels that people are told by.")

ChannelId = Annotated[str, typer.Argument(help="The channel's id; `channels list` shows it.")]


@remote(channels, "list")
def list_channels(session: Session) -> None:
    """List the channels and how they fare."""
    page = session.client.channels.page()
    rows = Rows(list(page.items), page.pagination)
    rows.show(session.output, "channels", columns.CHANNELS, "There are none: nobody is told of alerts.")


@remote(channels)
def show(session: Session, channel_id: ChannelId) -> None:
    """Show one, when a message last arrived there, and what last went wrong."""
    session.output.answer(session.client.channels.read(channel_id))


@remote(channels)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="Its name.")],
    kind: Annotated[ChannelKindName, typer.Option("--kind", help="What it is.")],
    target: Annotated[
        str, typer.Option("--to", metavar="TARGET", help="A URL; for e-mail, addresses with commas between them.")
    ],
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only alerts of this rule; repeatable.")] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            help="Only alerts about this endpoint, by name or id; repeatable.",
            autocompletion=complete_endpoint,
        ),
    ] = None,
    no_recoveries: Annotated[bool, typer.Option("--no-recoveries", help="Not when something is over.")] = False,
) -> None:
    """Make a channel; for a webhook its signing secret is shown this once.

    Example: `doorstep channels create operators --kind email --to ops@shop.example`
    """
    named = [str(endpoint_id_of(session.client, one)) for one in endpoint or ()]
    recoveries = False if no_recoveries else None
    made = session.client.channels.create(
        name, kind, target, rules=rule, endpoint_ids=named or None, recoveries=recoveries
    )
    session.output.answer(made)


@remote(channels)
def test(session: Session, channel_id: ChannelId) -> None:
    """Send a message that says that it is a test; `channels show` says what came of it."""
    sent = session.client.channels.test(channel_id)
    session.output.line(sent, f"{channel_id}  a test message is on its way")


@remote(channels)
def resume(session: Session, channel_id: ChannelId) -> None:
    """Send there again, after it was disabled because it was gone or had failed for days."""
    resumed = session.client.channels.resume(channel_id)
    session.output.line(resumed, f"{channel_id}  {resumed.state}")


@remote(channels)
def delete(session: Session, channel_id: ChannelId, yes: Yes = False) -> None:
    """Send nothing there any more."""
    confirm(session.output, f"Delete channel {channel_id}?", yes)
    session.client.channels.delete(channel_id)
    session.output.line({"channel_id": channel_id, "deleted": True}, f"{channel_id}  deleted")
