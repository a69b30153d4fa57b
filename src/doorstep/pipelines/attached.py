"""What every part of a Pipeline works with: its plan, and the Doorstep that it was added to."""

from __future__ import annotations

from uuid import UUID

from doorstep.errors import ConfigError
from doorstep.model.entity import Entity
from doorstep.path.host import Host
from doorstep.pipelines.moves import Turn
from doorstep.pipelines.plan import Plan
from doorstep.pipelines.writing import write


class Attached:
    """A part of class Pipeline."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._host: Host | None = None
        self._org_id = UUID(int=0)

    @property
    def name(self) -> str:
        """What its entities are called."""
        return self.plan.name

    @property
    def org_id(self) -> UUID:
        """The organization that it was added for."""
        return self._org_id

    @property
    def arrival(self) -> str:
        """The type of the event that brings an entity begun in a program's own transaction."""
        return self.plan.event_type(self.plan.first)

    @property
    def _opened(self) -> Host:
        if self._host is None:
            raise ConfigError(f"pipeline {self.name!r} belongs to no Doorstep yet; call doorstep.add(…) with it first")
        return self._host

    async def _write(self, turn: Turn) -> Entity | None:
        return await self._opened.binding.call(lambda: write(self._opened, turn))
