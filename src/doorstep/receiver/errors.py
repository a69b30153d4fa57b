"""Why a request is not handled, drawn as a tree.

    Unverified              answer 401: do not believe a word of it
    ├── HeaderMissing       webhook-id, webhook-timestamp or webhook-signature is not there
    ├── HeaderUnreadable    it is there, and is not what it should be
    ├── TooOld              sent too long ago: perhaps an old request, captured and sent again
    ├── TooNew              sent in the future: one of the two clocks is wrong
    └── SignatureWrong      none of its signatures was made with one of the secrets
    StillHandling           answer 503: the same webhook is being handled at this moment

The messages name headers, never secrets, and may be shown to the sender.
"""

from __future__ import annotations

from doorstep.errors import DoorstepError


class Unverified(DoorstepError):
    """It cannot be shown that this request comes from Doorstep, now and unchanged."""


class HeaderMissing(Unverified):
    """A header that every webhook has is not there."""

    def __init__(self, header: str) -> None:
        super().__init__(f"the header {header} is missing")
        self.header = header


class HeaderUnreadable(Unverified):
    """A header is not what it should be."""

    def __init__(self, header: str, rule: str) -> None:
        super().__init__(f"the header {header} must be {rule}")
        self.header = header


class TooOld(Unverified):
    """It was sent longer ago than is tolerated."""


class TooNew(Unverified):
    """It was sent further in the future than is tolerated."""


class SignatureWrong(Unverified):
    """None of its signatures was made with one of the secrets."""


class StillHandling(DoorstepError):
    """The same webhook came again while it is being handled; the sender should come back later."""
