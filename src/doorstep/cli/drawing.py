"""How answers look to people: tables and lines with colours. Loaded only when something is drawn, because Rich is slow
to load and programs that ask for JSON never need it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from doorstep.cli.output import Column, value_in, visible, words_for

_WIDTH_IN_A_PIPE = 250
"""Wide enough that no id is cut in what is piped into grep or a file."""
_STYLES = {
    **dict.fromkeys(("delivered", "active", "ok", "closed", "finished", "succeeded", "resolved"), "green"),
    **dict.fromkeys(("failed", "dead", "disabled", "problem", "open", "refused", "revoked", "wrong"), "red"),
    **dict.fromkeys(("queued", "pending", "in_progress", "paused", "running", "half_open", "warning"), "yellow"),
    **dict.fromkeys(("archived", "cancelled", "deleted"), "dim"),
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program with a failure; whether it is one is for exits.py to say."""
        raise BrokenPipeError


def new_console() -> Console:
    """The one that answers go to."""
    terminal = sys.stdout.isatty()
    return _Console(highlight=False, markup=False, emoji=False, width=None if terminal else _WIDTH_IN_A_PIPE)


def grid(thing: object, columns: Sequence[Column]) -> Table:
    """One thing, its fields one a line."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for column in columns:
        drawn.add_row(column.title, cell(value_in(thing, column)))
    return drawn


def table(rows: Iterable[object], columns: Sequence[Column]) -> Table:
    """Many things, one a line."""
    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        drawn.add_column(column.title, no_wrap=column.whole, overflow="fold" if column.whole else "ellipsis")
    for row in rows:
        drawn.add_row(*(cell(value_in(row, column)) for column in columns))
    return drawn


def cell(value: object) -> Text:
    """A value as people read it in a table."""
    words = visible(words_for(value))
    return Text(words, style=_STYLES.get(words, ""))
