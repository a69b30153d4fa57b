"""The declarations of a program, made before its Doorstep is opened: handlers, endpoints, dead-letter callbacks."""

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
from doorstep.transports.isolation.pool import Isolation, IsolationOptions, isolations


class Registry:
    """`doorstep.registry`."""

    def __init__(self, timeout_seconds_max: float) -> None:
        self._timeout_seconds_max = timeout_seconds_max
        self.handlers: dict[str, Handler] = {}
        """The functions that endpoints may name as their handler."""
        self.handler_orgs: dict[str, frozenset[UUID]] = {}
        """The organizations whose endpoints may use each handler."""
        self.declarations: list[Declaration] = []
        """The declared endpoints, created or updated at each start."""
        self.dead_letter_callbacks: list[DeadLetterCallback] = []
        self.isolated: dict[str, IsolationOptions] = {}
        """The handlers that run in separate processes."""
        self.isolate_all = False
        """Run every handler in separate processes, regardless of its declaration: `doorstep worker --isolate`."""
        self.loaded_from: str | None = None
        """The `module:name` given to --app, from which the processes of isolated handlers import the Doorstep."""

    def copy(self) -> Self:
        """A copy that can be changed independently."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(copied, name, copy(value))
        return copied

    def declare(self, form: EndpointForm, org_id: UUID) -> None:
        """Declare an endpoint to create or update at each start. Raises if it is invalid or its name is taken."""
        declaration = Declaration(form, org_id)
        if any(one.form.name == form.name and one.org_id == org_id for one in self.declarations):
            raise ConfigError(name_taken(form.name))
        check_form(form, self._timeout_seconds_max)
        check_declarable(declaration, self.declarations)
        self.declarations.append(declaration)

    def add_handler(self, name: str, handler: Handler, org_id: UUID, isolated: IsolationOptions | None = None) -> None:
        """Let the endpoints of an organization use a function. Organizations that were added before keep it."""
        self.handlers[name] = handler
        self.handler_orgs[name] = self.handler_orgs.get(name, frozenset()) | {org_id}
        if isolated is not None:
            self.isolated[name] = isolated

    def isolations(self, owner: object) -> dict[str, Isolation]:
        """How to run each isolated handler. `owner` is the Doorstep, which must be a module-level variable."""
        defaults = {name: IsolationOptions() for name in self.handlers} if self.isolate_all else {}
        return isolations(self.handlers, defaults | self.isolated, owner, self.loaded_from)


def name_taken(name: str) -> str:
    return f"two handlers are named {name!r}; give one of them another name="


@contextmanager
def errors_naming(handler: str) -> Iterator[None]:
    """Turn InvalidInput into a ConfigError that names the handler."""
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(f"handler {handler!r}: {error}") from None
