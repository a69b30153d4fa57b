"""Where answers go: tables for people, or JSON for programs. Nothing else is ever written to standard output.

Names and messages come from other people's systems. They are shown as plain text with their control characters made
visible, because a terminal obeys whatever escape sequence is printed into it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDTH_FOR_ALL = 130


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
        self._given = console

    @cached_property
    def console(self) -> Console:
        """Where people read."""
        from doorstep.cli.drawing import new_console

        return self._given or new_console()

    def answer(self, value: object, columns: Sequence[Column] = ()) -> None:
        """One thing: the whole of it as JSON, or its fields one a line (those of `columns`, if given)."""
        if self.as_json:
            self.json(value)
            return
        from doorstep.cli.drawing import grid

        self.console.print(grid(value, columns or [Column(name, name) for name in _fields(value)]))

    def listing(self, whole: object, rows: Iterable[object], columns: Sequence[Column], empty: str) -> None:
        """A list: `whole` as JSON, or the rows as a table; `empty` is said to people when there are none."""
        if self.as_json:
            self.json(whole)
            return
        from doorstep.cli.drawing import table

        fitting = [column for column in columns if not column.spare or self.console.width >= _WIDTH_FOR_ALL]
        drawn = table(rows, fitting)
        if drawn.row_count:
            self.console.print(drawn)
        else:
            self.note(empty)

    def line(self, value: object, words: str | Text) -> None:
        """One thing, as a line of JSON or in a line of words: what an act brought about, or one of many as they come."""
        if self.as_json:
            self.json(value)
        else:
            self.console.print(visible(words) if isinstance(words, str) else words, soft_wrap=True)

    def json(self, value: object) -> None:
        """One line of JSON."""
        file = sys.stdout if self._given is None else self._given.file
        file.write(msgspec.json.encode(value).decode() + "\n")
        file.flush()

    def text(self, sentence: str) -> None:
        """A sentence that belongs to the answer, for people."""
        if not self.as_json:
            self.console.print(visible(sentence), soft_wrap=True)

    def note(self, sentence: str) -> None:
        """A remark for people, beside the answer: on standard error, and not for programs."""
        if not self.as_json:
            print(visible(sentence), file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """The text with control characters as `\\x1b`, so that a terminal shows them instead of obeying them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text)


def words_for(value: object) -> str:
    """A value as people read it."""
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
            return ", ".join(words_for(one) for one in value) or "–"
        case int():
            return str(value)
    return msgspec.json.encode(value).decode()


def value_in(row: object, column: Column) -> object:
    """What a row has in a column."""
    if callable(column.value):
        return column.value(row)
    return row.get(column.value) if isinstance(row, dict) else getattr(row, column.value)


def _fields(value: object) -> Iterable[str]:
    return value if isinstance(value, dict) else getattr(value, "__struct_fields__", ())


def say(*lines: str) -> None:
    """Words for whoever started the program. On standard error, so that the log on standard output stays clean."""
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads them
