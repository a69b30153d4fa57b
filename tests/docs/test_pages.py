"""The pages describe only what exists, and everything that exists is described on a page."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.cli.main import command_tree
from doorstep.config import setting_rows
from tests.docs.pages import DOCS, PAGES, REFERENCE, ROOT, fences, rows
from tests.support.patience import PATIENCE_SECONDS

COMMANDS = REFERENCE / "commands.md"
ALL_TEXT = "\n".join(page.read_text() for page in PAGES)
_COMPLETION = {"--install-completion"}
"""Typer adds this option automatically, to the program but not to its commands."""
_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_the_generated_pages_are_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_documented() -> None:
    assert [row.variable for row in setting_rows() if f"`{row.variable}`" not in ALL_TEXT] == []


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    named = set(re.findall(r"\bDOORSTEP_[A-Z_]*[A-Z]\b", ALL_TEXT))
    assert named - {row.variable for row in setting_rows()} == set()


def test_every_command_and_option_is_documented() -> None:
    found = dict(_commands(command_tree(), "doorstep"))
    assert len(found) > 40
    for path, command in found.items():
        assert f"# `{path}`\n" in ALL_TEXT
        section = COMMANDS.read_text().partition(f"# `{path}`\n")[2].partition("\n#")[0]
        written = set(re.findall(r"^\| `([\w-]+)", section, re.MULTILINE))
        assert written | _shared_by(path) == {_name(option) for option in command.params if not _hidden(option)}, path


def test_no_command_repeats_a_shared_option() -> None:
    shared = {row[0].strip("`") for row in rows(COMMANDS, "## Shared options")}
    assert shared == {"--json", "--url", "--key"}
    assert {name: COMMANDS.read_text().count(f"\n| `{name}` |") for name in shared} == dict.fromkeys(shared, 1)


@_every_page
def test_every_command_line_in_a_shell_example_would_be_understood(page: Path) -> None:
    """Each command line is parsed completely, but not run."""
    for line in (line for code in fences(page, "sh") for line in code.splitlines() if line.startswith("doorstep ")):
        command, words = _command(shlex.split(line, comments=True))
        command.make_context(line, words)


@_every_page
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    """Checks commands in backticks, where arguments may be omitted."""
    for line in re.findall(r"`(doorstep [^`]+)`", page.read_text()):
        command, words = _command(line.split())
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | _COMPLETION
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_control_a_wrong_command_line_is_noticed() -> None:
    with pytest.raises(AssertionError, match="paws"):
        _command(["doorstep", "endpoints", "paws", "shop"])
    command, words = _command(["doorstep", "endpoints", "pause", "shop", "--nonsense"])
    with pytest.raises(Exception, match="--nonsense"):
        command.make_context("control", words)


def test_every_route_is_documented() -> None:
    paths = create_application(Doorstep("memory://")).openapi()["paths"]
    routes = [f"`{method.upper()} {path}`" for path, operations in paths.items() for method in operations]
    assert len(routes) > 10
    assert [route for route in routes if route not in ALL_TEXT] == []


@_every_page
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|mailto:)([^)#]*)(#[^)]*)?\)", page.read_text())
    assert [link for link, _ in links if link and not (page.parent / link).exists()] == []
    to_headings = [(page.parent / link if link else page, anchor) for link, anchor in links if anchor]
    assert [(str(target), anchor) for target, anchor in to_headings if anchor not in _anchors(target)] == []


@_every_page
def test_every_python_example_is_python(page: Path) -> None:
    for code in fences(page, "python"):
        ast.parse(code)


@_every_page
def test_every_shell_example_is_shell(page: Path) -> None:
    for code in fences(page, "sh", "shell", "bash"):
        done = subprocess.run(
            ["/bin/sh", "-n"], input=code, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr


@_every_page
def test_every_code_block_is_closed_and_nothing_is_left_to_fill_in(page: Path) -> None:
    text = page.read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
    assert re.findall(r"@@\w+@@|\bTODO\b|\bTBD\b|\bFIXME\b", text) == []


@_every_page
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """Checks paths in backticks: `tests/faults`, `docs/retries.md`, `src/doorstep/config.py`."""
    assert [name for name in _paths(page) if not list(ROOT.glob(name))] == []


@_every_page
def test_every_table_has_as_many_cells_in_each_row_as_in_its_head(page: Path) -> None:
    assert _broken_rows(page.read_text()) == []


@pytest.mark.parametrize("row", ["| one |", "| one | two | three |", "| one\n\ntwo | |", "| `a|b` | two |"])
def test_the_control_a_broken_row_is_noticed(row: str) -> None:
    head = "| a | b |\n| --- | --- |\n"
    assert _broken_rows(f"{head}| `1 \\| 2` | two |\n") == []
    assert _broken_rows(f"{head}{row}\n") != []


def test_every_page_in_docs_is_linked_from_the_index_and_the_index_from_the_readme() -> None:
    index = DOCS / "README.md"
    pages = {page.relative_to(DOCS) for page in DOCS.glob("**/*.md")} - {Path("README.md")}
    assert [page for page in sorted(pages) if f"({page})" not in index.read_text()] == []
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_every_page_in_docs_is_in_one_of_the_four_groups() -> None:
    groups = {page.relative_to(DOCS).parts[0] for page in DOCS.glob("**/*.md")}
    assert groups == {"README.md", "tutorial", "how-to", "reference", "explanation"}


def _broken_rows(text: str) -> list[str]:
    """Table lines with more or fewer cells than the line before, and lines that end like a table row but do not begin
    like one."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    broken, width = [], 0
    for line in prose.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if cells and (not line.endswith("|") or (width and cells != width)) or not cells and line.endswith("|"):
            broken.append(line)
        width = cells
    return broken


def _shared_by(path: str) -> set[str]:
    """The shared options that this command takes according to the page."""
    table = rows(COMMANDS, "## Shared options")
    return {name.strip("`") for name, _, without in table if f"`{path}`" not in without.split(", ")}


def _name(param: Any) -> str:
    flag: str = param.opts[0]
    return flag if flag.startswith("-") else flag.upper()


def _hidden(param: Any) -> bool:
    return bool(getattr(param, "hidden", False))


def _command(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that a command line names, and the rest of the line."""
    found, rest = command_tree(), list(words[1:])
    while rest and not rest[0].startswith("-") and hasattr(found, "commands"):
        assert rest[0] in found.commands, f"there is no command {rest[0]} in {' '.join(words)}"
        found = found.commands[rest.pop(0)]
    return found, rest


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _paths(page: Path) -> Iterator[str]:
    for name in re.findall(r"`((?:tests|docs|src|bench|examples|deploy|requirements)/[^`\s]*)`", page.read_text()):
        yield name.partition("::")[0].rstrip("/")


def _anchors(page: Path) -> set[str]:
    """The anchors of a page that links can point to."""
    return {f"#{_anchor(heading)}" for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
