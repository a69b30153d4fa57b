"""How a list ends: with page links, with an offer to search further, or with the reason why it is empty."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from doorstep.console import rendering
from doorstep.console.fields import Fields

TEMPLATES = Path(rendering.__file__).with_name("templates")


def ending(rows: object, next: str | None, **query: str) -> str:
    macro = rendering._environment().get_template("parts.html").module.ending
    request = SimpleNamespace(path="/console/audit", query=Fields(query.items()), filtered="actor" in query)
    return str(macro(request, rows, next, "No actions yet.", what="actions"))


def test_a_list_that_was_not_gone_through_yet_does_not_say_that_nothing_matches() -> None:
    assert "Search on" in ending([], "7", actor="lena")
    assert "for this filter" not in ending([], "7", actor="lena")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"actor": "lena"}, "No actions for this filter."),
        ({"cursor": "7"}, "No more actions."),
        ({}, "No actions yet."),
    ],
)
def test_an_empty_list_says_why(query: dict[str, str], said: str) -> None:
    assert said in ending([], None, **query)


def test_a_list_with_rows_has_its_pages() -> None:
    assert "Next page" in ending(["a row"], "7")


def test_every_list_that_has_pages_ends_in_this_way() -> None:
    paged = {path.name for path in TEMPLATES.glob("*.html") if "parts.nothing(" in path.read_text()}
    assert paged == {"alert_channels.html", "alert_silences.html", "settings_orgs.html"}  # these lists have one page
