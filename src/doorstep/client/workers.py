"""The processes that deliver."""

from __future__ import annotations

from doorstep.client.answers.workers import Worker
from doorstep.client.call import Call, Page, get, paged
from doorstep.client.verbs import Group, R_co, verb


class Workers(Group[R_co]):
    """`client.workers`: for keys of the default organization."""

    @verb
    def page(self) -> Call[Page[Worker]]:
        """All there are, those that were lost within a day too."""
        return get(paged("workers", Worker), "/v1/workers")
