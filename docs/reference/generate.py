"""Generates the library reference from the docstrings and signatures of all public names.

python docs/reference/generate.py           writes docs/reference/library/*.md
python docs/reference/generate.py --check   fails if any of them is out of date

Both fail if a public name has no docstring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from source import Routine, Thing, module_docstring, public_names, thing

FOLDER = Path(__file__).parent / "library"


class Page(NamedTuple):
    """A module, its guides, and the types that its users get as arguments or results without importing them."""

    module: str
    guides: tuple[str, ...]
    met: tuple[tuple[str, str], ...] = ()


PAGES = {
    "doorstep.md": Page(
        "doorstep",
        (
            "tutorial/library.md",
            "how-to/handlers.md",
            "how-to/outbox.md",
            "how-to/batches.md",
            "how-to/pipelines.md",
            "how-to/own-routes.md",
        ),
        (
            ("doorstep.engine.accept", "Options"),
            ("doorstep.operations.endpoint_rules", "HandlerFields"),
            ("doorstep.operations.endpoint_rules", "EndpointFields"),
            ("doorstep.operations.batches", "Batches"),
            ("doorstep.operations.outbox", "Outbox"),
            ("doorstep.server_additions", "ServerAdditions"),
            ("doorstep.loop_binding", "LoopBinding"),
            ("doorstep.loop_binding", "Pin"),
            ("doorstep.schemas.events", "RejectedMessage"),
            ("doorstep.schemas.pipelines", "EntityChange"),
            ("doorstep.model.listing", "Page"),
        ),
    ),
    "errors.md": Page("doorstep.errors", ("how-to/handlers.md", "explanation/retries.md")),
    "testing.md": Page("doorstep.testing", ("how-to/testing.md",)),
    "client.md": Page(
        "doorstep.client",
        ("how-to/clients.md", "reference/api.md"),
        (
            ("doorstep.client.events", "Events"),
            ("doorstep.client.events", "Inbox"),
            ("doorstep.client.endpoints", "Endpoints"),
            ("doorstep.client.queues", "RetryQueue"),
            ("doorstep.client.queues", "DeadLetters"),
            ("doorstep.client.queues", "Deliveries"),
            ("doorstep.client.queues", "BulkOperations"),
            ("doorstep.client.events", "Batches"),
            ("doorstep.client.events", "Pipelines"),
            ("doorstep.client.administration", "Keys"),
            ("doorstep.client.administration", "Orgs"),
            ("doorstep.client.administration", "Audit"),
        ),
    ),
    "receiver.md": Page("doorstep.receiver", ("how-to/receiving.md",)),
    "web.md": Page("doorstep.web", ("how-to/pipelines.md",)),
}
WITHOUT_MEMBERS = {"Settings"}
"""Classes whose members are documented on a separate page, such as docs/reference/settings.md."""


def things(page: Page) -> list[Thing]:
    """First the importable names in alphabetical order, then the types that users do not import."""
    importable = sorted(public_names(page.module), key=str.lower)
    found = [*(thing(page.module, name) for name in importable), *(thing(*met) for met in page.met)]
    return [Thing(one.name, one.about, one.signatures) if one.name in WITHOUT_MEMBERS else one for one in found]


def written(page: Page) -> str:
    guides = ", ".join(_guide(guide) for guide in page.guides)
    found = things(page)
    lines = [
        f"# `{page.module}`",
        "",
        f"This page is generated from the docstrings. Guides: {guides}.",
        "",
        module_docstring(page.module),
        "",
        "| name | description |",
        "| --- | --- |",
        *(f"| [`{one.name}`](#{one.name.lower()}) | {_first_sentence(one.about)} |" for one in found),
        "",
    ]
    return "\n".join([*lines, *(line for one in found for line in _section(one))])


def _guide(path: str) -> str:
    """A link from a page in docs/reference/library to a page elsewhere in docs."""
    return f"[{Path(path).name}](../../{path})".replace("../../reference/", "../")


def _section(one: Thing) -> Iterator[str]:
    yield from (f"## {one.name}", "", *_code(one.signatures), one.about, "")
    if one.fields:
        yield from ("| field | type | description |", "| --- | --- | --- |")
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
            print(f"docs/reference/library/{name} is out of date; run python docs/reference/generate.py")
        return 1 if stale or unsaid else 0
    for name in stale:
        (FOLDER / name).write_text(texts[name])
        print(f"wrote docs/reference/library/{name}")
    return 1 if unsaid else 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
