"""The plan of a pipeline: its statuses in order, their meaning for the engine, and the allowed changes between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Unpack

from doorstep.errors import ConfigError
from doorstep.model.delivery import IllegalTransition
from doorstep.model.endpoint import CircuitRules
from doorstep.model.entity import Phase
from doorstep.operations.endpoint_rules import HandlerFields

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
NEVER_OPENS = CircuitRules(failures_max=1_000_000, disable_after_seconds=365 * 86_400)
"""The default circuit rules of a stage. If one document is unreadable, the next one may still be readable, so failures
practically never open the circuit or disable the stage."""


class Stage:
    """A step that a function performs. `failed` is the status of entities whose most recent attempt at this stage
    failed."""

    def __init__(
        self,
        name: str,
        *,
        failed: str,
        isolated: bool = False,
        memory_mb_max: int | None = None,
        **fields: Unpack[HandlerFields],
    ) -> None:
        """`fields` are options of a handler, such as `policy`, `timeout_seconds` and `concurrency_max`."""
        self.name = name
        self.failed = failed
        self.isolated = isolated
        self.memory_mb_max = memory_mb_max
        self.fields: HandlerFields = {"circuit": NEVER_OPENS, **fields}


class Gate:
    """A step at which an entity waits until a person approves or rejects it."""

    def __init__(self, name: str) -> None:
        self.name = name


Step = Stage | Gate


class Plan:
    """The plan of a pipeline, built from its declaration. An invalid declaration raises a ConfigError that names the
    mistake."""

    def __init__(self, name: str, *, first: str, steps: Sequence[Step], last: str, dead: str, archived: str) -> None:
        self.name = name
        self.first, self.last, self.dead, self.archived = first, last, dead, archived
        self.steps = tuple(steps)
        self._check()
        self.phases: Mapping[str, Phase] = dict(self._phases())
        """The phase of every status. The statuses on the path to success come first, in order, then those for
        failures."""
        self.transitions: Mapping[tuple[str, str], str] = dict(self._transitions())
        """Every allowed change of status, with its cause."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(step for step in self.steps if isinstance(step, Stage))

    @property
    def gates(self) -> frozenset[str]:
        return frozenset(step.name for step in self.steps if isinstance(step, Gate))

    @property
    def first_stage(self) -> Stage:
        return self.stages[0]

    def stage(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(stage.name for stage in self.stages)
        raise ConfigError(f"pipeline {self.name!r} has no stage {name!r}; its stages are {known}")

    def after(self, name: str) -> Step | None:
        """The step that follows a stage or a gate; None after the last step."""
        position = [step.name for step in self.steps].index(name)
        return self.steps[position + 1] if position + 1 < len(self.steps) else None

    def event_type(self, stage: str) -> str:
        """The type of the events that drive a stage. It is also the name of the stage's handler."""
        return f"{self.name}.{stage}"

    def can_retry(self, status: str) -> bool:
        """Whether an entity in this status may be retried from the start.

        A retry is also possible in a status that is no longer declared, because nothing else could change such an
        entity.
        """
        return status not in self.phases or (status, self.first) in self.transitions

    def check(self, old: str, new: str) -> None:
        """Raise IllegalTransition for a change of status that the declaration does not allow."""
        if old not in self.phases and new in (self.first, self.dead, self.archived):
            return
        if (old, new) not in self.transitions:
            raise IllegalTransition(f"a {self.name} cannot go from {old} to {new}")

    def diagram(self) -> str:
        """The plan as a Mermaid state diagram, for documentation."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.first}: start"]
        lines += [f"    {old} --> {new}: {why}" for (old, new), why in self.transitions.items()]
        return "\n".join([*lines, f"    {self.last} --> [*]"])

    # -- derived from the declaration ----------------------------------------------------------------------

    def _phases(self) -> Iterator[tuple[str, Phase]]:
        yield self.first, Phase.RUNNING
        for step in self.steps:
            yield step.name, Phase.RUNNING if isinstance(step, Stage) else Phase.RESTING
        yield self.last, Phase.RESTING
        for stage in self.stages:
            yield stage.failed, Phase.RUNNING
        yield self.dead, Phase.DEAD
        yield self.archived, Phase.ARCHIVED

    def _transitions(self) -> Iterator[tuple[tuple[str, str], str]]:
        yield (self.first, self.first_stage.name), "begun"
        for step in self.steps:
            following = self.after(step.name)
            yield (step.name, following.name if following else self.last), _DONE[type(step)]
        for stage in self.stages:
            yield (stage.name, stage.failed), "failed"
            yield (stage.failed, stage.name), "retried"
        running = (status for status, phase in self.phases.items() if phase is Phase.RUNNING)
        yield from (((status, self.dead), "dead letter") for status in running)
        yield from (((gate, self.dead), "rejected") for gate in sorted(self.gates))
        yield (self.dead, self.archived), "stale"
        for status in (*dict.fromkeys(stage.failed for stage in self.stages), self.dead, self.archived):
            yield (status, self.first), "retried from the start"
        for status in (self.dead, self.archived):
            yield from (((status, stage.name), "delivery retried") for stage in self.stages)

    def _check(self) -> None:
        if not self.steps or not isinstance(self.steps[0], Stage):
            raise ConfigError(f"pipeline {self.name!r} must begin with a Stage; put one before its gates")
        failed = {stage.failed for stage in self.stages}  # stages may share a `failed` status
        names = Counter([self.first, self.last, self.dead, self.archived, *failed, *(step.name for step in self.steps)])
        twice = [name for name, count in names.items() if count > 1]
        odd = [name for name in (self.name, *names) if not _NAME.fullmatch(name)]
        if odd:
            raise ConfigError(
                f"{odd[0][:70]!r} is not a valid name for a pipeline or a status; use at most 64 letters, digits and _"
            )
        if twice:
            raise ConfigError(f"pipeline {self.name!r} uses {twice[0]!r} for two statuses; give one another name")


_DONE: dict[type[Step], str] = {Stage: "done", Gate: "approved"}
