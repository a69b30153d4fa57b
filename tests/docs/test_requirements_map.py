"""tests/requirements-map.md names existing tests, and includes every requirement and every acceptance test."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import HOW_TO, REQUIREMENTS_MAP, ROOT

MAP = REQUIREMENTS_MAP.read_text()
REQUIREMENTS = [
    *(f"R1.{number}" for number in range(1, 5)),
    *(f"R2.{number}" for number in range(1, 7)),
    *(f"R3.{number}" for number in range(1, 6)),
    *(f"R4.{number}" for number in range(1, 5)),
    *(f"R5.{number}" for number in range(1, 6)),
    *(f"R6.{number}" for number in range(1, 5)),
    *(f"R7.{number}" for number in range(1, 7)),
    *(f"R8.{number}" for number in range(1, 8)),
    *(f"R9.{number}" for number in range(1, 5)),
    *(f"R10.{number}" for number in range(1, 5)),
    *("R11.1", "R11.2"),
    "R12.1",
    *("R13.1", "R13.2", "R13.3"),
]
PROFILES = ("triggers", "webhooks", "integrations", "sms", "protocols")
NAMED = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", MAP))


def test_every_requirement_so_far_has_a_test() -> None:
    proved = re.findall(r"^\| (R\d+\.\d+) \| .+ \| `tests/", MAP, re.MULTILINE)
    assert list(dict.fromkeys(proved)) == REQUIREMENTS


def test_every_row_names_a_test_or_a_measurement_or_says_why_there_is_none() -> None:
    rows = re.findall(r"^\| R\d+\.\d+ \| .+? \| (.+) \|$", MAP, re.MULTILINE)
    assert len(rows) > 80
    assert [row for row in rows if not re.match(r"`tests/|measured by `make bench` \(`bench/|not yet: \w", row)] == []


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 100
    assert [f"{path}::{name}" for path, name in sorted(NAMED) if name not in _tests_in(path)] == []


def test_every_acceptance_test_is_named() -> None:
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/acceptance").glob("test_*.py"))
    there = {(path, name) for path in paths for name in _tests_in(path)}
    assert there - NAMED == set()


def test_every_profile_has_a_row_an_example_and_a_page() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\(\.\./docs/how-to/profiles/\1\.md\) \| .+ \| `examples/\1` \| `tests/examples/test_\1\.py::",
        MAP,
        re.MULTILINE,
    )
    assert tuple(rows) == PROFILES
    assert [name for name in PROFILES if not (ROOT / "examples" / name / "__main__.py").exists()] == []
    assert [name for name in PROFILES if not (HOW_TO / "profiles" / f"{name}.md").exists()] == []


def _tests_in(path: str) -> set[str]:
    file = ROOT / path
    body = ast.parse(file.read_text()).body if file.exists() else []
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}
