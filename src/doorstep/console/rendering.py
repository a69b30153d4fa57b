"""Templates. Everything in them is text unless a template says otherwise, and none does so of what others sent."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from doorstep import __version__
from doorstep.console import drawing, words
from doorstep.console.assets import asset
from doorstep.console.navigation import MENU
from doorstep.model.act import REASON_CHARACTERS_MAX
from doorstep.path.bulk import RATE_MAX, RATE_MIN
from doorstep.path.registrar import DRAIN_MAX, DRAIN_MIN

_FOLDER = Path(__file__).with_name("templates")
_FILTERS = (
    words.ago, words.lasting, words.utc, words.exactly, words.moment, words.spoken, words.until, words.amount, words.counted,
    words.sized, drawing.pretty,
)  # fmt: skip


def rendered(template: str, **context: object) -> str:
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {one.__name__: one for one in _FILTERS}
    environment.globals |= {
        "asset": asset,
        "menu": MENU,
        "version": __version__,
        "share": words.share,
        "plural": words.plural,
        "reason_max": REASON_CHARACTERS_MAX,
        "rate_min": RATE_MIN,
        "rate_max": RATE_MAX,
        "drain_min": DRAIN_MIN,
        "drain_max": DRAIN_MAX,
        "sparkline": drawing.sparkline,
    }
    return environment
