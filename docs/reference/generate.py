"""Writes the reference of the public names from their docstrings and signatures.

python docs/reference/generate.py           writes docs/reference/*.md
python docs/reference/generate.py --check   fails if they are not up to date

Either way it fails if a public name has no docstring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from source import Routine, Thing, module_docstring, public_names, thing

FOLDER = Path(__file__).parent


class Page(NamedTuple):
    """A module, and what its names lead to: things that are met, but not imported, by those who use it."""

    module: str
    guides: tuple[str, ...]
    met: tuple[tuple[str, str], ...] = ()


PAGES = {
    "doorstep.md": Page(
        "doorstep",
        ("tutorial.md", "handlers.md", "outbox.md", "batches.md", "pipelines.md"),
        (
            ("doorstep.path.drafting", "Options"),
            ("doorstep.path.describing", "HandlerFields"),
            ("doorstep.path.describing", "EndpointFields"),
            ("doorstep.path.batches", "Batches"),
            ("doorstep.model.entity", "EntityChange"),
            ("doorstep.model.listing", "Page"),
        ),
    ),
    "errors.md": Page("doorstep.errors", ("handlers.md", "retries.md")),
    "testing.md": Page("doorstep.testing", ("testing.md",)),
    "client.md": Page(
        "doorstep.client",
        ("clients.md", "api.md"),
        (
            ("doorstep.client.events", "Events"),
            ("doorstep.client.events", "Inbox"),
            ("doorstep.client.endpoints", "Endpoints"),
            ("doorstep.client.queues", "RetryQueue"),
            ("doorstep.client.queues", "DeadLetters"),
            ("doorstep.client.queues", "Deliveries"),
            ("doorstep.client.queues", "BulkOperations"),
            ("doorstep.client.pipelines", "Batches"),
            ("doorstep.client.pipelines", "Pipelines"),
            ("doorstep.client.accounts", "Keys"),
            ("doorstep.client.accounts", "Orgs"),
            ("doorstep.client.accounts", "Audit"),
        ),
    ),
    "receiver.md": Page("doorstep.receiver", ("receiving.md",)),
    "web.md": Page("doorstep.web", ("pipelines.md",)),
}
WITHOUT_MEMBERS = {"Settings"}
"""They have a page of their own, docs/settings.md."""


def things(page: Page) -> list[Thing]:
    """What can be imported, in alphabetical order; then what is met."""
    importable = sorted(public_names(page.module), key=str.lower)
    found = [*(thing(page.module, name) for name in importable), *(thing(*met) for met in page.met)]
    return [Thing(one.name, one.about, one.signatures) if one.name in WITHOUT_MEMBERS else one for one in found]


def written(page: Page) -> str:
    guides = ", ".join(f"[{guide}](../{guide})" for guide in page.guides)
    found = things(page)
    lines = [
        f"# `{page.module}`",
        "",
        f"This page is generated from the docstrings. To read in order: {guides}.",
        "",
        module_docstring(page.module),
        "",
        "| name | |",
        "| --- | --- |",
        *(f"| [`{one.name}`](#{one.name.lower()}) | {_first_sentence(one.about)} |" for one in found),
        "",
    ]
    return "\n".join([*lines, *(line for one in found for line in _section(one))])


def _section(one: Thing) -> Iterator[str]:
    yield from (f"## {one.name}", "", *_code(one.signatures), one.about, "")
    if one.fields:
        yield from ("| field | type | |", "| --- | --- | --- |")
        yield from (f"| `{value.name}` | {_cell(_quoted(value.type))} | {_cell(value.about)} |" for value in one.fields)
        yield ""
    for routine in one.routines:
        yield from _routine(one.name, routine)


def _routine(owner: str, routine: Routine) -> Iterator[str]:
    yield from (f"### `{owner}.{routine.name}`", "", *_code(routine.signatures), routine.about, "")


def _code(signatures: list[str]) -> list[str]:
    return ["```text", *signatures, "```", ""]


def _quoted(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _first_sentence(text: str) -> str:
    return _cell(" ".join(text.split("\n\n")[0].split()))


def main() -> int:
    unsaid = [f"{page.module}: {name}" for page in PAGES.values() for one in things(page) for name in one.unsaid()]
    for name in unsaid:
        print(f"{name} has no docstring")
    texts = {name: written(page) for name, page in PAGES.items()}
    stale = [name for name, text in texts.items() if _read(FOLDER / name) != text]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/reference/{name} is not up to date; run python docs/reference/generate.py")
        return 1 if stale or unsaid else 0
    for name in stale:
        (FOLDER / name).write_text(texts[name])
        print(f"wrote docs/reference/{name}")
    return 1 if unsaid else 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
