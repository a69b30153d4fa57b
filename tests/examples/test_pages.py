"""The profile pages: every test that they name exists, and every test of an example is named."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT
from tests.examples import test_integrations_facts as integrations
from tests.examples import test_protocols_facts as protocols
from tests.examples import test_sms_facts as sms
from tests.examples import test_triggers_facts as triggers
from tests.examples import test_webhooks_facts as webhooks
from tests.examples.looking import PROFILES
from tests.examples.served import facts_in, facts_on

PAGES = sorted(PROFILES.glob("*.md"))
_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_is_a_page_for_every_example_here() -> None:
    examples = {path.parent.name for path in ROOT.glob("examples/*/__main__.py")}
    assert {"triggers", "webhooks", "integrations"} <= examples
    assert examples <= {page.stem for page in PAGES}


@_every_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:tests|examples)/[\w/]+\.py)::(\w+)`", page.read_text())
    assert named
    assert [(path, name) for path, name in named if f"def {name}(" not in (ROOT / path).read_text()] == []


@_every_page
def test_every_test_of_the_example_is_named_in_its_page(page: Path) -> None:
    tests = ROOT / "tests" / "examples" / f"test_{page.stem}.py"
    names = re.findall(r"^async def (test_\w+)\(", tests.read_text(), re.MULTILINE) if tests.exists() else []
    assert [name for name in names if f"::{name}`" not in page.read_text()] == []


@pytest.mark.parametrize("profile", ["triggers", "webhooks", "integrations"])
def test_the_page_of_a_profile_that_is_configured_covers_every_group_of_requirements(profile: str) -> None:
    covered = set(re.findall(r"^\| (R\d+)\.\d+ \|", (PROFILES / f"{profile}.md").read_text(), re.MULTILINE))
    assert {"R1", "R2", "R3", "R4", "R6", "R7"} <= covered


@pytest.mark.parametrize("asked", [integrations, protocols, sms, triggers, webhooks], ids=lambda asked: asked.__name__)
def test_the_page_of_a_profile_lists_every_fact_with_its_test_and_their_count(asked: ModuleType) -> None:
    name = asked.__name__.rpartition(".")[2].removeprefix("test_").removesuffix("_facts")
    page = PROFILES / f"{name}.md"
    facts = facts_in(asked)
    assert facts_on(page) == facts
    assert f"\n{len(facts)} facts, " in page.read_text()
