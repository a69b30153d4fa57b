"""How a page is declared: its method, its path, the permission that it needs, and what answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from doorstep.console.request import HOME, PageRequest
from doorstep.model.org import Permission

Answer = Callable[[PageRequest], Awaitable[Response]]
LOOK, ACT, ADMINISTER = Permission.LOOK, Permission.ACT, Permission.ADMINISTER


class Page(NamedTuple):
    method: str
    path: str
    permission: Permission
    answer: Answer
    default_org: bool = False
    """Only for keys of the default organization, which looks after the whole installation."""


class Pages:
    """The pages of one screen. Whatever changes something is a POST, and needs a permission to act."""

    def __init__(self, under: str = "") -> None:
        self._under = HOME + under
        self.pages: list[Page] = []

    def get(
        self, path: str = "", permission: Permission = LOOK, *, default_org: bool = False
    ) -> Callable[[Answer], Answer]:
        return self._declared("GET", path, permission, default_org)

    def post(
        self, path: str = "", permission: Permission = ACT, *, default_org: bool = False
    ) -> Callable[[Answer], Answer]:
        return self._declared("POST", path, permission, default_org)

    def _declared(
        self, method: str, path: str, permission: Permission, default_org: bool
    ) -> Callable[[Answer], Answer]:
        def declare(answer: Answer) -> Answer:
            self.pages.append(Page(method, self._under + path, permission, answer, default_org))
            return answer

        return declare
