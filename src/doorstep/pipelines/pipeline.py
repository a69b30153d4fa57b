"""A Pipeline: declared in Python, added to a Doorstep, and driven by it from stage to stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from doorstep.clock import DAY
from doorstep.errors import ConfigError
from doorstep.path.describing import HandlerFields, check_function, form_from
from doorstep.path.enrol import EndpointForm, PolicyForm
from doorstep.path.host import Host
from doorstep.pipelines.plan import NEVER_OPENS, Gate, Plan, Stage
from doorstep.pipelines.stage_handler import StageFunction, StageRun, handler_for
from doorstep.pipelines.starting import ARRIVAL_POLICY, Starting
from doorstep.pipelines.verbs import Verbs
from doorstep.wire.received import Handler

F = TypeVar("F", bound=StageFunction)

Register = Callable[[str, Handler, Stage | None], None]
"""Takes a handler by its name, and the stage that it is of."""


class Pipeline(Verbs, Starting):
    """Staged work with a status that people can trust.

        protocols = Pipeline(
            "protocol",
            first="uploaded",
            stages=[
                Stage("extracting", failed="extraction_failed"),
                Stage("grounding", failed="grounding_failed"),
                Gate("pending_review"),
            ],
            last="complete",
        )
        doorstep.add(protocols)

        @protocols.stage("extracting")
        def extract(entity):
            return {**entity.data, "text": read(entity.data["path"])}

    A stage may run twice for the same entity (a worker may die before it could say that it was done), so what it does
    outside must bear that. What it returns is kept once, together with the step to the next stage.
    """

    def __init__(
        self,
        name: str,
        *,
        first: str,
        stages: Sequence[Stage | Gate],
        last: str,
        dead: str = "dead_letter",
        archived: str = "archived",
        archive_after_days: float = 7,
        policy: PolicyForm = "pipeline",
        plural: str | None = None,
    ) -> None:
        """`policy` is for stages that have none of their own; `pipeline` tries at once, three times in all.

        `plural` is what lists of entities are called in web applications: the name and an s, unless it is given.
        """
        plan = Plan(name, first=first, steps=stages, last=last, dead=dead, archived=archived)
        super().__init__(plan, round(archive_after_days * DAY))
        self.plural = plural or f"{name}s"
        self._policy = policy
        self._functions: dict[str, StageFunction] = {}
        self._register: Register | None = None

    def stage(self, name: str) -> Callable[[F], F]:
        """Declare the function of a stage. What it returns, a mapping, is the entity's new data; None leaves it.

        A process may do without some of the functions: it leaves those stages to the workers that have them.
        """
        stage = self.plan.stage(name)

        def declare_stage(function: F) -> F:
            check_function(f"stage {name!r} of pipeline {self.name!r}", function)
            if name in self._functions:
                raise ConfigError(f"stage {name!r} of pipeline {self.name!r} has two functions; it needs one")
            self._functions[name] = function
            self._attach(stage)
            return function

        return declare_stage

    # -- for the Doorstep that it is added to --------------------------------------------------------------

    def join(self, host: Host, org_id: UUID, register: Register) -> None:
        """Work for this Doorstep and organization; `register` takes the handlers of the stages."""
        if self._host is not None:
            raise ConfigError(f"pipeline {self.name!r} was added twice; one Doorstep has it once")
        self._host, self._org_id, self._register = host, org_id, register
        register(self.arrival, self.arrive, None)
        for name in self._functions:
            self._attach(self.plan.stage(name))

    def forms(self) -> Sequence[EndpointForm]:
        """The endpoints of its stages, and that for entities begun in a program's own transaction."""
        arrival: HandlerFields = {"policy": ARRIVAL_POLICY, "circuit": NEVER_OPENS}
        described: list[tuple[str, HandlerFields]] = [(self.plan.first, arrival)]
        described += [(stage.name, stage.fields) for stage in self.plan.stages]
        named = [(self.plan.event_type(step), fields) for step, fields in described]
        return [
            form_from(name, {"policy": self._policy, **fields, "handler": name, "event_types": (name,)})
            for name, fields in named
        ]

    @property
    def missing(self) -> Sequence[str]:
        """The stages whose functions this process does not have."""
        return [stage.name for stage in self.plan.stages if stage.name not in self._functions]

    def _attach(self, stage: Stage) -> None:
        if self._register is not None:
            run = StageRun(self._opened, self._org_id, self.plan, stage)
            self._register(self.plan.event_type(stage.name), handler_for(run, self._functions[stage.name]), stage)
