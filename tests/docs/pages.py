"""The documentation pages, and helpers that read their contents."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIAL, HOW_TO, REFERENCE, EXPLANATION = (
    DOCS / folder for folder in ("tutorial", "how-to", "reference", "explanation")
)
REQUIREMENTS_MAP = ROOT / "tests" / "requirements-map.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), REQUIREMENTS_MAP])


def fences(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page that are in one of these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language in languages]


def section(page: Path, heading: str) -> str:
    """The text under a second-level heading."""
    text = page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"{page.name} has a section {heading!r}"
    return text


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of each row in the first table after a heading, without the header row."""
    text = f"\n{page.read_text()}".partition(f"\n{heading}\n")[2]
    table = re.search(r"^\|.*?(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert table, f"{page.name} has a table under {heading!r}"
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[0].splitlines()[2:]]
