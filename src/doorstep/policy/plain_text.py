"""What others chose (names, errors, event types) stays plain text in messages: it calls nobody and leads nowhere.

An endpoint may be named `@everyone`, and a receiver answers what it likes. Chats read markup in such text: Slack that
in angle brackets; Mattermost, Discord and Rocket.Chat, which take Slack's messages too, also Markdown and a bare `@`. An
invisible space after the sign ends its meaning, and changes nothing for the eye. A URL that stands there in the open
stays one.
"""

from __future__ import annotations

_GAP = "\u200b"
_MARKS = str.maketrans({"@": f"@{_GAP}", "<": f"<{_GAP}", "&": f"&{_GAP}", "`": "'"})
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def one_line(text: str) -> str:
    """Without line ends and other control characters: who is named over two lines must not write lines of ours."""
    return "".join(one if one.isprintable() else " " for one in text)


def percent(value: float) -> str:
    """What was measured: `5.7%`; it says 100 only of everything, and 0 only of nothing."""
    if 99.95 <= value < 100:
        return "99.9%"
    if 0 < value < 0.05:
        return "0.1%"
    return f"{value:.1f}%".replace(".0%", "%")


def percent_as_set(value: float) -> str:
    """What somebody has set: `0.02%`, with all of its digits."""
    return f"{value:.15g}%"


def without_markup(text: str) -> str:
    """For chats that read Markdown: nobody is called, no link hides where it leads, no code block swallows the rest."""
    return text.translate(_MARKS).replace("](", f"]{_GAP}(").replace("][", f"]{_GAP}[")


def for_slack(text: str) -> str:
    """The same for what Slack, and whoever takes its messages, reads; even where the entities are decoded first."""
    return without_markup(text).translate(_ENTITIES)
