"""`doorstep endpoints`: the receivers of events."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from doorstep.cli import columns, endpoint_actions
from doorstep.cli.endpoint_form import EndpointArgument, Form, Reset, with_resets
from doorstep.cli.endpoint_names import endpoint_named
from doorstep.cli.options import Yes
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import Paging, Session, gather, remote
from doorstep.schemas.endpoints import ListedState, Signing
from doorstep.schemas.stats import Range

app = typer.Typer(no_args_is_help=True, help="Create, see, change, hold and test the receivers of events.")
app.add_typer(endpoint_actions.app)

State = Annotated[ListedState | None, typer.Option("--state", help="Only those in this state.")]


@remote(app, "list")
def list_endpoints(session: Session, paging: Paging, state: State = None) -> None:
    """List the endpoints, in the order of their creation."""
    rows = gather(session.client.endpoints.page, paging, state=state)
    empty = "There are no endpoints; make one with `doorstep endpoints create`."
    rows.show(session.output, "endpoints", columns.ENDPOINTS, empty)


@remote(app)
def health(
    session: Session,
    paging: Paging,
    range: Annotated[Range, typer.Option("--range", help="Over this time.")] = "24h",
) -> None:
    """Show how each endpoint fares: success rate, time to delivery, what waits, its circuit."""
    rows = gather(session.client.endpoints.health, paging, range=range)
    rows.show(session.output, "endpoints", columns.HEALTH, "There are no endpoints.")


@remote(app)
def create(
    session: Session,
    form: Form,
    name: Annotated[str, typer.Argument(help="What people call it.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help="Where it receives.")] = None,
    handler: Annotated[
        str | None, typer.Option("--handler", metavar="NAME", help="Instead of a URL: a handler that workers have.")
    ] = None,
    signing: Annotated[
        Signing | None, typer.Option("--signing", help="v1: shared secret [default]; v1a: Ed25519.")
    ] = None,
) -> None:
    """Create an endpoint. Its signing secret is shown only this once.

    Example: `doorstep endpoints create shop https://shop.example/hook --type 'order.*' --policy quick`
    """
    fields = form.fields(name=name, url=url, handler=handler, signing=signing)
    session.output.answer(session.client.endpoints.create(**fields))
    session.output.note("Keep the secret: it is shown only this once, and the receiver checks signatures with it.")


@remote(app)
def show(session: Session, endpoint: EndpointArgument) -> None:
    """Show an endpoint; its secret and the values of its headers are never shown."""
    session.output.answer(endpoint_named(session.client, endpoint))


@remote(app)
def update(
    session: Session,
    endpoint: EndpointArgument,
    form: Form,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Call it this.")] = None,
    target: Annotated[str | None, typer.Option("--target", metavar="URL", help="Where it receives.")] = None,
    reset: Reset = None,
) -> None:
    """Change what is given, and only that.

    Example: `doorstep endpoints update shop --policy 5s,1m,10m --reset rate_per_second`
    """
    found = endpoint_named(session.client, endpoint)
    fields = form.fields(msgspec.to_builtins(found.circuit), name=name, url=target)
    changed = session.client.endpoints.change(found.endpoint_id, **with_resets(fields, reset or ()))
    session.output.answer(changed)


@remote(app)
def delete(session: Session, endpoint: EndpointArgument, yes: Yes = False) -> None:
    """Delete an endpoint. What still waits for it becomes dead letters."""
    found = endpoint_named(session.client, endpoint)
    confirm(session.output, f"Delete endpoint {found.name}? What waits for it becomes dead letters.", yes)
    session.client.endpoints.delete(found.endpoint_id)
    session.output.line({"endpoint_id": found.endpoint_id, "deleted": True}, f"{found.endpoint_id}  deleted")
