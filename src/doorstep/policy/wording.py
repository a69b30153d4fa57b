"""Labels and sentences of the console that a program may replace with its own: those of the retry queue and of the dead
letters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from doorstep.errors import ConfigError

CONSOLE_WORDING: Mapping[str, str] = MappingProxyType(
    {
        # columns
        "event_type": "Event type",
        "external_system": "External system",
        "error": "Error",
        "retry_count": "Retries",
        "next_retry_at": "Next retry",
        "first_failed_at": "First failed",
        # actions
        "retry_now": "Retry now",
        "skip": "Skip",
        "view_log": "View log",
        "retry_dead_letter": "Retry",
        "resolve": "Resolve",
        "delete": "Delete",
        # questions about one entry
        "skip_question": "Skip the retry and move it to the dead letters?",
        "delete_question": "Permanently delete this entry?",
        # outcomes
        "retry_succeeded": "Retry succeeded. Event removed from the queue.",
        "dead_letter_retry_succeeded": "Retry succeeded. Event removed from the dead letters.",
        "skipped": "Moved to dead letters.",
        "resolved": "Marked as resolved.",
        "deleted": "Entry deleted.",
        "bulk_retry_running": "Retry running: {succeeded}/{total} succeeded, {failed} failed.",
        "bulk_retry_finished": "Retry finished: {succeeded}/{total} succeeded, {failed} failed.",
    }
)
_COUNTS = {"succeeded": 0, "failed": 0, "total": 0}


def check_wording(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if name not in CONSOLE_WORDING:
            raise ConfigError(f"the console has no text {name!r} to replace; there are {', '.join(CONSOLE_WORDING)}")
        try:
            text.format_map(_COUNTS if name.startswith("bulk_retry_") else {})
        except (KeyError, ValueError, IndexError, AttributeError):
            raise ConfigError(
                f"the text {name!r} has placeholders that it cannot have: bulk_retry_running and bulk_retry_finished"
                f" may have {{succeeded}}, {{failed}} and {{total}}, others none; got {text!r}"
            ) from None
