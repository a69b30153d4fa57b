"""The structure of a page: its elements with their attributes, parsed as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    form: int
    """The number of the form that contains the element; 0 if none does."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Element] = []
        self._forms = 0
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "form":
            self._forms += 1
            self._inside = self._forms
        self.found.append(Element(tag, {name: value or "" for name, value in attrs}, self._inside))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = 0


def elements(source: str) -> list[Element]:
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return reader.found


def shapes(source: str) -> set[tuple[str, str]]:
    """Every pair of an element and one of its attributes; an element without attributes yields a pair with an empty
    name."""
    return {(one.tag, name) for one in elements(source) for name in one.attributes or [""]}


def fields_of(source: str) -> list[str]:
    """The names of all form fields, except the CSRF token that every form of the console contains."""
    names = {one.attributes["name"] for one in elements(source) if one.form and one.attributes.get("name")}
    return sorted(names - {"csrf"})
