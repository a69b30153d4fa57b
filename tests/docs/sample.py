"""Compares the output that a page shows with a command's real output, and remembers values that differ between runs.

In a sample, ids, keys and secrets are placeholders for those of the reader's own run. Once a placeholder has been seen,
it must stand for the same value everywhere, in output and in typed commands. Times and durations need only have the
same format, `…` stands for any text, and spaces between columns match any number of spaces.
"""

from __future__ import annotations

import re

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KEY, _SECRET = r"dsk_[\w-]+", r"whsec_[A-Za-z0-9+/=]+"
_NAMES = rf"{_UUID}|{_KEY}|{_SECRET}"
_ALIKE = (r"\d{4}-\d\d-\d\dT[\d:.]+Z", r"\d\d:\d\d:\d\d\.\d{3}", r"\d+ ms", "─+", r"\s+")
_TOKEN = re.compile("|".join([f"(?P<name>{_NAMES})", "(?P<anything>…)", *_ALIKE]))


class Samples:
    """One reader's run: the placeholders in the page, and their real values."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        """Text in the page, such as addresses, and its replacement in this run."""
        self._names: dict[str, str] = {}

    def typed(self, command: str) -> str:
        """The command with the values and addresses of this run."""
        return re.sub(_NAMES, lambda found: self._names.get(found[0], found[0]), self._placed(command))

    def matches(self, sample: str, shown: str, *, whole: bool = True) -> bool:
        """Whether the output matches the page's sample; if so, the values of new placeholders are remembered."""
        pattern, new = self._pattern(self._placed(sample.strip()))
        found = (re.fullmatch if whole else re.search)(pattern, shown.strip(), re.DOTALL)
        if found is None:
            return False
        self._names |= {name: found[group] for name, group in new.items()}
        return True

    def _pattern(self, sample: str) -> tuple[str, dict[str, str]]:
        new: dict[str, str] = {}
        parts, done = [], 0
        for token in _TOKEN.finditer(sample):
            parts += [re.escape(sample[done : token.start()]), self._part(token, new)]
            done = token.end()
        return "".join([*parts, re.escape(sample[done:])]), new

    def _part(self, token: re.Match[str], new: dict[str, str]) -> str:
        if token["anything"]:
            return ".*?"
        if not token["name"]:
            return next(shape for shape in _ALIKE if re.fullmatch(shape, token[0]))
        name = token[0]
        if name in self._names:
            return re.escape(self._names[name])
        if name in new:
            return f"(?P={new[name]})"
        new[name] = f"n{len(new)}"
        kind = next(kind for kind in (_UUID, _KEY, _SECRET) if re.fullmatch(kind, name))
        return f"(?P<{new[name]}>{kind})"

    def _placed(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        return text
