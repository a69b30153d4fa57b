"""What one check found: that all is well, or what is wrong and what to do about it."""

from __future__ import annotations

from rich.text import Text

from doorstep.cli.output import visible
from doorstep.model.noun import Noun

OK, PROBLEM = "ok", "problem"
_STYLES = {OK: "green", PROBLEM: "bold red"}
_CHECK_WIDTH = 14


class Finding(Noun, frozen=True, kw_only=True):
    check: str
    verdict: str
    """`ok` or `problem`."""
    found: str
    remedy: str | None = None
    """What to do; problems have one."""

    @property
    def words(self) -> Text:
        """One line for people, and one more with the remedy."""
        text = Text(f"{self.check:{_CHECK_WIDTH}} ")
        text.append(f"{self.verdict:8}", style=_STYLES[self.verdict])
        text.append(visible(self.found))
        if self.remedy is not None:
            text.append(f"\n{'':{_CHECK_WIDTH}} {'':8}→ {visible(self.remedy)}", style="yellow")
        return text


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, verdict=OK, found=found)


def problem(check: str, found: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=PROBLEM, found=found, remedy=remedy)
