"""Output of commands: tables for people, or JSON for programs. Nothing else is ever written to standard output.

Names and messages come from other systems. They are printed as plain text with control characters escaped, because a
terminal executes any escape sequence that is printed. Rich is slow to load, so it is imported only to draw tables and
text, never for JSON.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec
import typer

from doorstep.errors import ConfigError, DoorstepError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from doorstep.schemas.bulk import Bulk

_FULL_WIDTH_MIN = 130
_PIPE_WIDTH = 250
"""The width of piped output: wide enough that no id is truncated in grep or in a file."""
_STYLES = {
    **dict.fromkeys(("delivered", "active", "ok", "closed", "finished", "succeeded", "resolved"), "green"),
    **dict.fromkeys(("failed", "dead", "disabled", "problem", "open", "refused", "revoked", "wrong"), "red"),
    **dict.fromkeys(("queued", "pending", "in_progress", "paused", "running", "half_open", "warning"), "yellow"),
    **dict.fromkeys(("archived", "cancelled", "deleted"), "dim"),
}


class Column(NamedTuple):
    """One column of a table. Its values come from a field of the row, or from a function of the row."""

    title: str
    value: str | Callable[[Any], object]
    whole: bool = False
    """Whether the column must never be truncated or wrapped. True for ids and times, which people copy."""
    spare: bool = False
    """Whether the column is omitted on a narrow terminal. JSON output always has every field."""


_TITLES = {
    "event_type": "type",
    "error_code": "error",
    "error_reason": "reason",
    "response_code": "code",
    "retry_attempts": "retries",
    "retry_count": "retries",
    "queue_depth": "waiting",
    "deliver_at": "deliver at",
    "expires_at": "expires at",
    "actor": "by",
    "acknowledged_by": "seen by",
    "carrier_response": "carrier",
    "prefix": "begins with",
    "target": "to",
    **dict.fromkeys(("old_state", "old_status"), "from"),
    **dict.fromkeys(("new_state", "new_status"), "to"),
}
"""The column titles that differ from the field names."""


_WHOLE = re.compile(r"at|cause|pipeline|worker|.*_(id|at|since)")


def columns(fields: str, spare: str = "", **more: str | Callable[[Any], object]) -> tuple[Column, ...]:
    """The columns of a table, from the names of their fields. Columns in `spare` come last.

    A column shows the field that it is named after, unless a keyword argument with its name gives another field, or a
    function of the row.
    """

    def column(name: str) -> Column:
        value = more.get(name, name)
        title = name.replace("_", " ") if name in more else _title(name)
        whole = isinstance(value, str) and any(map(_WHOLE.fullmatch, (name, value)))
        return Column(title, value, whole, spare=name in spare.split())

    return tuple(map(column, [*fields.split(), *spare.split()]))


def _title(field: str) -> str:
    return _TITLES.get(field) or re.sub("_(id|at|name)$", "", field).replace("_", " ")


class Output:
    """Standard output of one command, as text or as JSON."""

    def __init__(self, *, as_json: bool = False, console: Console | None = None) -> None:
        self.as_json = as_json
        self._given = console

    @cached_property
    def console(self) -> Console:
        return self._given or _new_console()

    def answer(self, value: object, columns: Sequence[Column] = ()) -> None:
        """Print one record. As JSON, it has all its fields; as text, it has one line per field, or one per column if
        `columns` is given."""
        if self.as_json:
            self.json(value)
            return
        fields = value if isinstance(value, dict) else getattr(value, "__struct_fields__", ())
        self.console.print(_grid(value, columns or [Column(name, name) for name in fields]))

    def listing(self, whole: object, rows: Iterable[object], columns: Sequence[Column], empty: str) -> None:
        """Print a list. With --json, print `whole`, or nothing if it is None. Without --json, print a table of the
        rows, or the note `empty` if there are none."""
        if self.as_json:
            if whole is not None:
                self.json(whole)
            return
        fitting = [column for column in columns if not column.spare or self.console.width >= _FULL_WIDTH_MIN]
        drawn = _table(rows, fitting)
        if drawn.row_count:
            self.console.print(drawn)
        else:
            self.note(empty)

    def line(self, value: object, text: str | Text) -> None:
        """Print one line, as JSON or as text: the result of an action, or one item of a stream."""
        if self.as_json:
            self.json(value)
        else:
            self.console.print(visible(text) if isinstance(text, str) else text, soft_wrap=True)

    def json(self, value: object) -> None:
        """Print one line of JSON."""
        file = sys.stdout if self._given is None else self._given.file
        file.write(msgspec.json.encode(value).decode() + "\n")
        file.flush()

    def text(self, sentence: str) -> None:
        """Print a sentence that is part of the result. With --json, it is omitted."""
        if not self.as_json:
            self.console.print(visible(sentence), soft_wrap=True)

    def note(self, sentence: str) -> None:
        """Print a remark to standard error. With --json, it is omitted."""
        if not self.as_json:
            print(visible(sentence), file=sys.stderr, flush=True)

    def confirm(self, question: str, yes: bool) -> None:
        """Continue only if the user confirms, at the prompt or with --yes."""
        if yes:
            return
        if self.as_json or not sys.stdin.isatty():
            raise ConfigError(
                f"{question.rstrip('?')} needs confirmation, and nobody can answer a prompt here; add --yes"
            )
        try:
            agreed = typer.confirm(visible(question), err=True)
        except typer.Abort:  # Ctrl-C or Ctrl-D
            agreed = False
        if not agreed:
            raise DoorstepError("nothing was done")


def say(*lines: str) -> None:
    """Print messages to standard error, for the person who started the program. Standard output is only for the log."""
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:
        pass  # standard error has been closed


def visible(text: str) -> str:
    """The text with control characters escaped (`\\x1b`), so that a terminal shows them instead of executing them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text)


# -- values ------------------------------------------------------------------------------------------------


def formatted(value: object) -> str:
    """A value as human-readable text."""
    match value:
        case None | "":
            return "–"
        case bool():
            return "yes" if value else "no"
        case str() | int() | UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(formatted(one) for one in value) or "–"
    return msgspec.json.encode(value).decode()


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.4g} %"


def duration(seconds: float | None) -> str:
    """`45 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: two units at most."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.3g} s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole, seconds = divmod(round(seconds), size)
        if whole:
            parts.append(f"{whole:.0f} {unit}")
    return " ".join(parts[:2])


def _value_in(row: object, column: Column) -> object:
    if callable(column.value):
        return column.value(row)
    return row.get(column.value) if isinstance(row, dict) else getattr(row, column.value)


# -- drawing -----------------------------------------------------------------------------------------------


def _new_console() -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Raise the error, so that commands.py handles it. Rich itself would exit with a failure."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return PipeConsole(highlight=False, markup=False, emoji=False, width=width)


def _grid(record: object, columns: Sequence[Column]) -> Table:
    from rich.table import Table

    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for column in columns:
        drawn.add_row(column.title, cell(_value_in(record, column)))
    return drawn


def _table(rows: Iterable[object], columns: Sequence[Column]) -> Table:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        drawn.add_column(column.title, no_wrap=column.whole, overflow="fold" if column.whole else "ellipsis")
    for row in rows:
        drawn.add_row(*(cell(_value_in(row, column)) for column in columns))
    return drawn


def cell(value: object) -> Text:
    """A value in a table. States are coloured."""
    from rich.text import Text

    text = visible(formatted(value))
    return Text(text, style=_STYLES.get(text, ""))


@contextmanager
def progress_bar(output: Output) -> Iterator[Callable[[Bulk], None]]:
    """A progress bar for a bulk operation, on standard error. Call the yielded function with each new state."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, quiet=output.as_json)
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        def show(bulk: Bulk) -> None:
            description = f"{bulk.kind} {bulk.state}: {bulk.progress}"
            done = bulk.refused + bulk.succeeded + bulk.failed
            progress.update(task, description=description, total=bulk.total, completed=done)

        yield show
