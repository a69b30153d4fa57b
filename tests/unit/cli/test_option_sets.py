"""Option sets: related options are expanded into single command-line options and collected again."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from doorstep.cli.options import collect, expand


class Filters(NamedTuple):
    status: str
    limit: int = 50


def command(name: str, filters: Filters, wait: bool = False) -> None: ...


PARAMETERS = list(inspect.signature(command, eval_str=True).parameters.values())


def test_a_set_is_replaced_by_its_fields_with_their_defaults() -> None:
    empty = inspect.Parameter.empty
    assert [(one.name, one.annotation, one.default) for one in expand(PARAMETERS)] == [
        ("name", str, empty),
        ("status", str, empty),
        ("limit", int, 50),
        ("wait", bool, False),
    ]


def test_what_was_given_is_put_together_again() -> None:
    given = {"name": "n", "status": "dead", "limit": 7, "wait": True}
    assert collect(PARAMETERS, given) == {"name": "n", "filters": Filters("dead", 7), "wait": True}
