"""Receiving webhooks: is this request really from Doorstep, and has it been handled before?

    from doorstep.receiver import Once, SqliteLedger, Webhook

Knows no web framework and loads nothing of the engine. See docs/how-to/receiving.md.
"""

from __future__ import annotations

from doorstep.receiver.once import Ledger, MemoryLedger, Once, Standing
from doorstep.receiver.sqlite_ledger import SqliteLedger
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
