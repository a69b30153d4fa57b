"""Small charts of text, one line each, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = " "


def sparkline(values: Sequence[float | None], width: int = 48, put_together: Callable[..., float] = max) -> str:
    """One character for each value, or for several where there are more than `width`; blank where there is none."""
    points = _fitted(values, width, put_together)
    top = max((point for point in points if point is not None), default=0.0)
    return "".join(_bar(point, top) for point in points)


def _bar(point: float | None, top: float) -> str:
    if point is None:
        return _NOTHING
    return _BARS[round(point / top * (len(_BARS) - 1))] if top > 0 else _BARS[0]


def _fitted(values: Sequence[float | None], width: int, put_together: Callable[..., float]) -> list[float | None]:
    size = max(1, -(-len(values) // width))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [_together([one for one in group if one is not None], put_together) for group in groups]


def _together(known: Sequence[float], put_together: Callable[..., float]) -> float | None:
    return put_together(known) if known else None
