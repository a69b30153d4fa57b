"""For programs that receive webhooks: verify that a request is from Doorstep, and handle each event once.

    from doorstep.receiver import Once, SqliteLedger, Webhook

It works with any web framework and does not load the engine. See docs/how-to/receiving.md.
"""

from __future__ import annotations

from doorstep.receiver.once import Ledger, MemoryLedger, Once, SqliteLedger, Standing
from doorstep.receiver.webhook import (
    HeaderMissing,
    HeaderUnreadable,
    Received,
    SignatureWrong,
    StillHandling,
    TooNew,
    TooOld,
    Unverified,
    Webhook,
)

__all__ = [
    "HeaderMissing",
    "HeaderUnreadable",
    "Ledger",
    "MemoryLedger",
    "Once",
    "Received",
    "SignatureWrong",
    "SqliteLedger",
    "Standing",
    "StillHandling",
    "TooNew",
    "TooOld",
    "Unverified",
    "Webhook",
]
