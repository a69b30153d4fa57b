"""What became of a mail at each of its addresses, and what that means for the delivery as a whole.

A server may take a mail for some of its addresses and refuse others, for now or for good. Who has it must not get it
again, so the report is kept in the attempt log, and the next attempt begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from doorstep.errors import Permanent, Transient
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code


class Report(Noun, frozen=True):
    """An address that is in none of the three has not been decided about."""

    sent: tuple[str, ...] = ()
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    """For good, with what the server said."""
    deferred: dict[str, str] = msgspec.field(default_factory=dict)
    """For now."""

    def then(self, later: Report) -> Report:
        """Both together; what was deferred was asked about again."""
        return Report(tuple(dict.fromkeys((*self.sent, *later.sent))), self.refused | later.refused, later.deferred)

    def left(self, addresses: Sequence[str]) -> list[str]:
        """Those that are still to be served."""
        return [one for one in addresses if one not in self.sent and one not in self.refused]

    def check(self) -> None:
        """Transient while somebody may still get it, then Permanent if somebody did not."""
        if self.deferred:
            raise Transient(self._code(Code.SERVICE_UNAVAILABLE), self._words(self.deferred), response=self)
        if self.refused:
            raise Permanent(self._code(Code.REJECTED), self._words(self.refused), response=self)

    def _code(self, of_all: str) -> str:
        """Where some have it the channel works, and its circuit is left alone."""
        return Code.RECIPIENT_REFUSED if self.sent else of_all

    def _words(self, answers: Mapping[str, str]) -> str:
        address, answer = next(iter(answers.items()))
        others = f", and for {len(answers) - 1} more likewise" if len(answers) > 1 else ""
        had = f" {len(self.sent)} got it." if self.sent else ""
        return f"For {address} the mail server answered {answer}{others}.{had}"


def earlier_report(logged: Sequence[bytes]) -> Report:
    """What all attempts before came to, from their responses in the log, oldest first: each report has what was in those
    before it."""
    for response in reversed(logged):
        with suppress(msgspec.MsgspecError):  # that attempt got nowhere, and has nothing to report
            return msgspec.json.decode(response, type=Report)
    return Report()
