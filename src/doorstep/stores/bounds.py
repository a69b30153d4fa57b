"""How much one call of a list looks at, and how much it gives: the same in every store."""

from __future__ import annotations

EXAMINED_MAX = 2_000
"""Index entries that a page is looked for in; when it has seen so many, it is given as it is, perhaps empty."""
COUNT_MAX = 10_000
"""Index entries that a count looks at; beyond, it is only a floor."""
WAITING_EXAMINED_MAX = 1_000
"""Waiting deliveries of an endpoint, those that are due first, among which the oldest is looked for."""
GROUPS_COUNTED_MAX = 30_000
"""Index entries that the counts of all groups of a page look at together."""
GROUP_DEPTH = 1_000
"""Letters of a cause that are looked at for one of the wanted event type."""
INBOX_BYTES_MAX = 8 * 2**20
"""The payloads of one page of the inbox: it ends with the one that uses this up (stores/weight.py)."""
OUTBOX_BYTES_MAX = 8 * 2**20
"""The payloads that are read from the outbox at once, likewise."""
