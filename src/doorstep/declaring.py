"""What a program says at the start: its handlers, batches, pipelines, and whom to tell of dead letters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, Unpack
from uuid import UUID

from doorstep.assembly import Parts
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.errors import ConfigError, InvalidInput
from doorstep.path.batches import check_declarable
from doorstep.path.declare import Declaration, check_form
from doorstep.path.describing import DeclaredFields, HandlerFields, check_event_types, check_function, form_from
from doorstep.path.host import Host
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage
from doorstep.services.herald import Mourner
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.wire.isolation.pool import Isolation
from doorstep.wire.isolation.wishes import Wish, isolations, wish_of
from doorstep.wire.received import Handler

H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Mourner)

_IN_TIME = "declare handlers before it is opened, and before the first event is sent"


class Declaring(Host):
    """A part of class Doorstep."""

    settings: Settings
    telemetry: Telemetry
    _parts: Parts

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        """The functions that endpoints may name as their handler."""
        self.handler_orgs: dict[str, frozenset[UUID]] = {}
        """The organizations that each of them is for: the endpoints of others cannot reach it by its name."""
        self.declarations: list[Declaration] = []
        """The endpoints that the program declares: made, or brought up to date, at each start."""
        self.pipelines: dict[str, Pipeline] = {}
        self.isolate_all = False
        """Run every handler in processes of its own, whatever its declaration says: `doorstep worker --isolate`."""
        self.loaded_from: str | None = None
        """The `module:name` that this was loaded from by --app, where handlers' processes find it again."""
        self._wishes: dict[str, Wish] = {}
        self._mourners: list[Mourner] = []

    @abstractmethod
    def is_open(self) -> bool:
        """Whether the store is open."""

    def handler(
        self,
        *event_types: str,
        name: str | None = None,
        org_id: UUID = DEFAULT_ORG,
        isolated: bool = False,
        memory_mb_max: int | None = None,
        **fields: Unpack[HandlerFields],
    ) -> Callable[[H], H]:
        """Declare that a function takes the events of these types. It becomes an endpoint, named like the function.

        A function that returns has delivered; see `Transient` and `Permanent` for the rest. The same event may come
        again. Plain functions run in threads, async ones in the event loop; isolated ones in processes of their own,
        one attempt at a time in each, where whatever they do costs that attempt alone. Of those there are as many as
        `concurrency_max` says, else as there are cores.
        """
        check_event_types(event_types)

        def declare_handler(function: H) -> H:
            endpoint = name or _name_of(function)
            check_function(f"handler {endpoint!r}", function)
            if self.handlers.get(endpoint, function) != function:  # methods are equal, but never the same object
                raise ConfigError(_taken(endpoint))
            described = {"handler": endpoint, "event_types": event_types, **fields}
            wish = wish_of(endpoint, isolated, fields.get("concurrency_max"), memory_mb_max)
            with _naming(endpoint):
                self._declare(Declaration(form_from(endpoint, described), org_id))
            self._register(endpoint, function, org_id)
            if wish is not None:
                self._wishes[endpoint] = wish
            return function

        return declare_handler

    def batch(self, *event_types: str, **fields: Unpack[DeclaredFields]) -> Callable[[H], H]:
        """Declare that a function submits the batches of these event types, which it names in full.

        A handler like any other, declared like one, with the policy `carrier` unless another is given. What it submits
        can be found by status, and resubmitted: see `doorstep.batches`.
        """
        described: DeclaredFields = {"policy": "carrier", **fields, "batch": True}
        return self.handler(*event_types, **described)

    def on_dead_letter(self, function: M) -> M:
        """Have a plain or async function called with each `DeadLetter` that this process makes, once; best effort.

        A process that ends first has told nobody. What the function raises is logged and harms nobody.
        """
        check_function(f"on_dead_letter: {function!r}", function)
        if not self._mourners:
            self.telemetry.subscribe(lambda facts: self._parts.herald.hear(facts))
        self._mourners.append(function)
        return function

    def _isolations(self) -> dict[str, Isolation]:
        wishes = {name: Wish() for name in self.handlers} if self.isolate_all else {}
        return isolations(self.handlers, wishes | self._wishes, self, self.loaded_from)

    def _declare(self, declaration: Declaration) -> None:
        name = declaration.form.name
        if self.is_open():
            raise ConfigError(f"handler {name!r} comes too late: this Doorstep is open; {_IN_TIME}")
        if any(one.form.name == name and one.org_id == declaration.org_id for one in self.declarations):
            raise ConfigError(_taken(name))
        check_form(declaration.form, self.settings.timeout_seconds_max)
        check_declarable(declaration, self.declarations)
        self.declarations.append(declaration)

    def register(self, name: str, handler: Handler, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Make a Python callable reachable for endpoints of an organization that name it as their handler.

        A later one replaces it, unless another organization has it too.
        """
        check_function(f"handler {name!r}", handler)
        orgs = self.handler_orgs.get(name, frozenset()) - {org_id}
        if orgs and self.handlers[name] != handler:
            raise ConfigError(_taken(name))
        self._register(name, handler, org_id)

    def _register(self, name: str, handler: Handler, org_id: UUID) -> None:
        self.handlers[name] = handler
        self.handler_orgs[name] = self.handler_orgs.get(name, frozenset()) | {org_id}

    def add(self, pipeline: Pipeline, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Drive the entities of a pipeline, which is declared with its stages and gates; before the store is opened."""
        if pipeline.name in self.pipelines:
            raise ConfigError(f"two pipelines are named {pipeline.name!r}; give one of them another name")
        for form in pipeline.forms():
            with _naming(form.name):
                self._declare(Declaration(form, org_id))
        pipeline.join(self, org_id, partial(self._register_stage, org_id))
        if not self.pipelines:
            self.telemetry.subscribe(self._tell_keeper)
        self.pipelines[pipeline.name] = pipeline

    def _register_stage(self, org_id: UUID, name: str, handler: Handler, stage: Stage | None) -> None:
        self.register(name, handler, org_id=org_id)
        if stage is not None:
            wish = wish_of(name, stage.isolated, stage.fields.get("concurrency_max"), stage.memory_mb_max)
            self._wishes |= {} if wish is None else {name: wish}

    def _tell_keeper(self, facts: Sequence[Fact]) -> None:
        self._parts.keeper.hear(facts)


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"a handler is named like its function, and {function!r} has no name; give it one with name=")
    return name


def _taken(name: str) -> str:
    return f"two handlers are named {name!r}; give one of them another name="


@contextmanager
def _naming(handler: str) -> Iterator[None]:
    """What is wrong with a declaration is said where it stands, with the handler's name."""
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(f"handler {handler!r}: {error}") from None
