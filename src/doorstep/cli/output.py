"""Where answers go: tables for people, or JSON for programs. Nothing else is ever written to standard output.

Names and messages come from other people's systems. They are shown as plain text with their control characters made
visible, because a terminal obeys whatever escape sequence is printed into it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_FOR_ALL = 130
_WIDTH_IN_A_PIPE = 250
"""Wide enough that no id is cut in what is piped into grep or a file."""
_STYLES = {
    **dict.fromkeys(("delivered", "active", "ok", "closed", "finished", "succeeded", "resolved"), "green"),
    **dict.fromkeys(("failed", "dead", "disabled", "problem", "open", "refused", "revoked", "wrong"), "red"),
    **dict.fromkeys(("queued", "pending", "in_progress", "paused", "running", "half_open", "warning"), "yellow"),
    **dict.fromkeys(("archived", "cancelled", "deleted"), "dim"),
}


class Column(NamedTuple):
    """One column of a table: its title, and the field's name or how to work it out of a row."""

    title: str
    value: str | Callable[[Any], object]
    whole: bool = False
    """Never cut nor broken over lines: ids, which people copy."""
    spare: bool = False
    """Left out where the terminal is narrow; everything is in the JSON."""


class Output:
    """A command's one way to speak to whoever called it."""

    def __init__(self, *, as_json: bool = False, console: Console | None = None) -> None:
        self.as_json = as_json
        self.console = console or _console()

    def answer(self, value: object, columns: Sequence[Column] = ()) -> None:
        """One thing: the whole of it as JSON, or its fields one a line (those of `columns`, if given)."""
        if self.as_json:
            self.json(value)
            return
        shown = columns or [Column(name, name) for name in _fields(value)]
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for column in shown:
            grid.add_row(column.title, cell(_value(value, column)))
        self.console.print(grid)

    def listing(self, whole: object, rows: Iterable[object], columns: Sequence[Column], empty: str) -> None:
        """A list: `whole` as JSON, or the rows as a table; `empty` is said to people when there are none."""
        if self.as_json:
            self.json(whole)
            return
        fitting = [column for column in columns if not column.spare or self.console.width >= _WIDTH_FOR_ALL]
        table = _table(fitting)
        for row in rows:
            table.add_row(*(cell(_value(row, column)) for column in fitting))
        if table.row_count:
            self.console.print(table)
        else:
            self.note(empty)

    def line(self, value: object, words: str | Text) -> None:
        """One thing, as a line of JSON or in a line of words: what an act brought about, or one of many as they come."""
        if self.as_json:
            self.json(value)
        else:
            self.console.print(words if isinstance(words, Text) else visible(words), soft_wrap=True)

    def json(self, value: object) -> None:
        """One line of JSON."""
        self.console.file.write(msgspec.json.encode(value).decode() + "\n")
        self.console.file.flush()

    def text(self, sentence: str) -> None:
        """A sentence that belongs to the answer, for people."""
        if not self.as_json:
            self.console.print(visible(sentence), soft_wrap=True)

    def note(self, sentence: str) -> None:
        """A remark for people, beside the answer: on standard error, and not for programs."""
        if not self.as_json:
            print(visible(sentence), file=sys.stderr, flush=True)


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.title, no_wrap=column.whole, overflow="fold" if column.whole else "ellipsis")
    return table


def cell(value: object) -> Text:
    """A value as people read it in a table."""
    words = visible(_words(value))
    return Text(words, style=_STYLES.get(words, ""))


def visible(text: str) -> str:
    """The text with control characters as `\\x1b`, so that a terminal shows them instead of obeying them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text)


def _words(value: object) -> str:
    match value:
        case None | "":
            return "–"
        case bool():
            return "yes" if value else "no"
        case str() | UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(_words(one) for one in value) or "–"
        case int():
            return str(value)
    return msgspec.json.encode(value).decode()


def _value(row: object, column: Column) -> object:
    if callable(column.value):
        return column.value(row)
    return row.get(column.value) if isinstance(row, dict) else getattr(row, column.value)


def _fields(value: object) -> Iterable[str]:
    return value if isinstance(value, dict) else getattr(value, "__struct_fields__", ())


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program with a failure; whether it is one is for exits.py to say."""
        raise BrokenPipeError


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return _Console(highlight=False, markup=False, emoji=False, width=None if terminal else _WIDTH_IN_A_PIPE)
