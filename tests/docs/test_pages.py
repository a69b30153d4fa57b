"""What the pages say exists, and what exists is in the pages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.cli.main import app as cli
from doorstep.config import setting_rows
from tests.docs.pages import DOCS, PAGES, ROOT, fences

ALL_TEXT = "\n".join(page.read_text() for page in PAGES)
_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_the_generated_pages_are_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_documented() -> None:
    assert [row.variable for row in setting_rows() if f"`{row.variable}`" not in ALL_TEXT] == []


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    named = set(re.findall(r"\bDOORSTEP_[A-Z_]*[A-Z]\b", ALL_TEXT))
    assert named - {row.variable for row in setting_rows()} == set()


def test_every_command_and_option_is_documented() -> None:
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        assert f"`doorstep {name}`" in ALL_TEXT
        for option in command.params:
            assert option.hidden or f"`{option.opts[0]}`" in ALL_TEXT, (name, option.opts)


def test_every_route_is_documented() -> None:
    paths = create_application(Doorstep("memory://")).openapi()["paths"]
    routes = [f"`{method.upper()} {path}`" for path, operations in paths.items() for method in operations]
    assert len(routes) > 10
    assert [route for route in routes if route not in ALL_TEXT] == []


@_every_page
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|mailto:)([^)#]*)(#[^)]*)?\)", page.read_text())
    assert [link for link, _ in links if link and not (page.parent / link).exists()] == []
    own = {f"#{_anchor(heading)}" for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}
    assert [anchor for link, anchor in links if not link and anchor not in own] == []


@_every_page
def test_every_python_example_is_python(page: Path) -> None:
    for code in fences(page, "python"):
        ast.parse(code)


@_every_page
def test_every_shell_example_is_shell(page: Path) -> None:
    for code in fences(page, "sh", "shell", "bash"):
        done = subprocess.run(["/bin/sh", "-n"], input=code, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr


@_every_page
def test_every_code_block_is_closed_and_nothing_is_left_to_fill_in(page: Path) -> None:
    text = page.read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
    assert re.findall(r"@@\w+@@|\bTODO\b|\bTBD\b|\bFIXME\b", text) == []


@_every_page
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """In backticks: `tests/faults`, `docs/retries.md`, `src/doorstep/config.py`."""
    assert [name for name in _paths(page) if not list(ROOT.glob(name))] == []


def test_every_page_in_docs_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in readme] == []


def _paths(page: Path) -> Iterator[str]:
    for name in re.findall(r"`((?:tests|docs|src|bench|examples|deploy|requirements)/[^`\s]*)`", page.read_text()):
        yield name.partition("::")[0].rstrip("/")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
