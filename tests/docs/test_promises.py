"""tests/promises.md names existing tests, includes every promise, and counts its controls correctly."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "tests" / "promises.md").read_text()


def test_every_promise_has_a_test_and_a_control() -> None:
    rows = re.findall(r"^\| (\d+) [^|]+ \| `tests/[^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 13))


def test_every_test_that_is_named_exists() -> None:
    named = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)))
    assert len(named) > 40
    assert [f"{path}::{name}" for path, name in named if not _exists(path, name)] == []


def test_the_controls_add_up() -> None:
    found = re.search(r"^(\d+) in all", PAGE, re.MULTILINE)
    assert found and int(found[1]) == sum(map(int, re.findall(r"^\| [^|]+ \| (\d+) \|", PAGE, re.MULTILINE)))


def _exists(path: str, name: str) -> bool:
    body = ast.parse((ROOT / path).read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return not name or name in functions
