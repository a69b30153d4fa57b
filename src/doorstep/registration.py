"""What a program declares before its Doorstep is opened: handlers, endpoints, and who is told of dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Self
from uuid import UUID

from doorstep.errors import ConfigError, InvalidInput
from doorstep.operations.batches import check_declarable
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.operations.endpoints import Declaration, check_form
from doorstep.services.dead_letter_notifier import DeadLetterCallback
from doorstep.transports.handler_replies import Handler
from doorstep.transports.isolation.options import IsolationOptions, isolations
from doorstep.transports.isolation.pool import Isolation


class Registry:
    """`doorstep.registry`."""

    def __init__(self, timeout_seconds_max: float) -> None:
        self._timeout_seconds_max = timeout_seconds_max
        self.handlers: dict[str, Handler] = {}
        """The functions that endpoints may name as their handler."""
        self.handler_orgs: dict[str, frozenset[UUID]] = {}
        """The organizations of each handler: the endpoints of others cannot reach it by its name."""
        self.declarations: list[Declaration] = []
        """The endpoints that the program declares, created or updated at each start."""
        self.dead_letter_callbacks: list[DeadLetterCallback] = []
        self.isolated: dict[str, IsolationOptions] = {}
        """The handlers that run in processes of their own."""
        self.isolate_all = False
        """Run every handler in processes of its own, whatever its declaration says: `doorstep worker --isolate`."""
        self.loaded_from: str | None = None
        """The `module:name` given to --app, where the processes of isolated handlers find the Doorstep again."""

    def copy(self) -> Self:
        """Another one with the same content."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(copied, name, copy(value))
        return copied

    def declare(self, form: EndpointForm, org_id: UUID) -> None:
        """Have an endpoint created or updated at each start; refuses what is not valid, or has a name that is taken."""
        declaration = Declaration(form, org_id)
        if any(one.form.name == form.name and one.org_id == org_id for one in self.declarations):
            raise ConfigError(name_taken(form.name))
        check_form(form, self._timeout_seconds_max)
        check_declarable(declaration, self.declarations)
        self.declarations.append(declaration)

    def add_handler(self, name: str, handler: Handler, org_id: UUID, isolated: IsolationOptions | None = None) -> None:
        """Make a function reachable for the endpoints of an organization, beside those that it is for already."""
        self.handlers[name] = handler
        self.handler_orgs[name] = self.handler_orgs.get(name, frozenset()) | {org_id}
        if isolated is not None:
            self.isolated[name] = isolated

    def isolations(self, owner: object) -> dict[str, Isolation]:
        """How each isolated handler is run; `owner` is the Doorstep that the program has in one of its modules."""
        all_of_them = {name: IsolationOptions() for name in self.handlers} if self.isolate_all else {}
        return isolations(self.handlers, all_of_them | self.isolated, owner, self.loaded_from)


def name_taken(name: str) -> str:
    return f"two handlers are named {name!r}; give one of them another name="


@contextmanager
def naming(handler: str) -> Iterator[None]:
    """What is wrong with a declaration is said where it stands, with the handler's name."""
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(f"handler {handler!r}: {error}") from None
