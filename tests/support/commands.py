"""Runs one `doorstep` command until it exits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from doorstep.cli.main import app
from tests.support.program import ADMIN_KEY, Program, clean_environment
from tests.support.warm_start import run_python


class Ended(NamedTuple):
    """The result of a command that has exited. Its output never contains a traceback."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The single JSON document on standard output."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON documents on standard output, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def doorstep(
    *arguments: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Ended:
    ended = ran(*arguments, folder=folder, environment=environment, stdin=stdin)
    assert "Traceback" not in ended.out + ended.err, ended
    return ended


def ran(
    *arguments: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Ended:
    """Run a command and return its result, without checking what it printed."""
    given = clean_environment() | dict(environment or {})
    done = run_python(["-m", "doorstep", *arguments], cwd=folder, env=given, stdin=stdin)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


class Remote:
    """Runs commands inside this process, against one running program with one key: same code, faster start."""

    def __init__(self, program: Program, key: str = ADMIN_KEY) -> None:
        self.environment = {"DOORSTEP_URL": program.url, "DOORSTEP_API_KEY": key}

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended:
        done = CliRunner().invoke(app, arguments, input=stdin, env=self.environment)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return self(*arguments, "--json", stdin=stdin).json
