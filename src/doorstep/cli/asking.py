"""Asking before something that cannot be undone. Where nobody can be asked, the explicit form is demanded."""

from __future__ import annotations

import sys

import typer

from doorstep.cli.output import Output, visible
from doorstep.errors import ConfigError, DoorstepError


def confirm(output: Output, question: str, yes: bool) -> None:
    """Go on only if the user says so, here or by --yes."""
    if yes:
        return
    if output.as_json or not sys.stdin.isatty():
        raise ConfigError(f"{question.rstrip('?')} needs a yes, and nobody can be asked here; add --yes")
    if not _agreed(visible(question)):
        raise DoorstepError("nothing was done")


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        return False
