"""`doorstep stats`, `slo` and `workers`: statistics, service-level targets and running workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from doorstep.cli.commands import Paging, Session, remote
from doorstep.cli.options import DurationSeconds, OfEndpoint, Share
from doorstep.cli.output import Column, columns, duration, percent
from doorstep.schemas.stats import Range

if TYPE_CHECKING:
    from doorstep.schemas.stats import Report

commands = typer.Typer()
slo = typer.Typer()


# -- statistics --------------------------------------------------------------------------------------------


@remote(commands)
def stats(
    session: Session,
    range: Annotated[Range | None, typer.Option("--range", help="Also show statistics of this period.")] = None,
    endpoint: OfEndpoint = None,
) -> None:
    """Show queue depth, dead letters and inbox size; with --range, also small charts of the past.

    Example: `doorstep stats --range 24h`
    """
    found = session.client.stats(range, endpoint_id=session.endpoint_id(endpoint))
    if session.output.as_json:
        session.output.json(found)
        return
    counts = {**found.deliveries, **found.events}
    shown: dict[str, object] = {name: f"at least {n}" if name in found.floors else n for name, n in counts.items()}
    session.output.answer(shown | {"oldest due": found.oldest_due_at})
    if found.report is not None:
        session.output.text("")
        session.output.answer(dict(_charts(found.report)))


def _charts(report: Report) -> Iterator[tuple[str, object]]:
    """Each series as a small chart, with its total."""
    summary, series = report.sum, report.series
    yield f"last {report.range}", f"{report.since:%Y-%m-%d %H:%M} to now, UTC"
    if series.events is not None and summary.events is not None:
        for name, values in series.events.items():
            yield f"events {name}", _chart(values, f"{summary.events[name]:,}", sum)
    yield "success rate", _chart(series.success_rate, percent(summary.success_rate), min)
    for name in ("p50", "p95", "p99"):
        yield f"time {name}", _chart(series.time_to_delivery[name], duration(summary.time_to_delivery[name]), max)
    yield "queue depth", _chart(series.queue_depth, f"{series.queue_depth[-1]:,} now", max)
    yield "dead letters", _chart(series.dead_letters, f"{series.dead_letters[-1]:,} now", max)
    retries = [one["deliveries"] for one in summary.retry_attempts]
    yield "retries used", f"{sparkline(retries)}  {', '.join(f'{used}: {n:,}' for used, n in enumerate(retries) if n)}"


def _chart(values: Sequence[float | None], total: str, combine: Callable[..., float]) -> str:
    return f"{sparkline(values, combine=combine)}  {total}"


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int = 48, combine: Callable[..., float] = max) -> str:
    """One character per value; a blank if there is no value. More than `width` values are combined in groups."""
    points = _fitted(values, width, combine)
    top = max((point for point in points if point is not None), default=0.0)
    return "".join(_bar(point, top) for point in points)


def _bar(point: float | None, top: float) -> str:
    if point is None:
        return " "
    return _BARS[round(point / top * (len(_BARS) - 1))] if top > 0 else _BARS[0]


def _fitted(values: Sequence[float | None], width: int, combine: Callable[..., float]) -> list[float | None]:
    size = max(1, -(-len(values) // width))
    groups = [[one for one in values[at : at + size] if one is not None] for at in range(0, len(values), size)]
    return [combine(group) if group else None for group in groups]


# -- targets -----------------------------------------------------------------------------------------------


def _rounded(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}" if number >= 10 else f"{number:.2g}"


_SLO = (
    Column("endpoint", "name"),
    Column("met", "met"),
    Column("success", lambda one: f"{percent(one.success_rate)} of {percent(one.target.success)}"),
    Column("p95", lambda one: f"{duration(one.p95_seconds)} of {duration(one.target.p95_seconds)}"),
    Column("oldest", lambda one: f"{duration(one.oldest_seconds)} of {duration(one.target.oldest_seconds)}"),
    Column("budget left", lambda one: percent(one.budget_left)),
    Column("burn 1h", lambda one: _rounded(one.burn["one_hour"])),
    Column("6h", lambda one: _rounded(one.burn["six_hours"])),
    Column("3d", lambda one: _rounded(one.burn["three_days"])),
    Column("waits since", "waiting_since", whole=True, spare=True),
)


@remote(slo, "list")
def list_slo(session: Session, paging: Paging) -> None:
    """Compare each endpoint with its target over 30 days, and show how fast its error budget burns."""
    page = paging.fetch(session.client.slo.page)
    session.show_page(page, "endpoints", _SLO, "There are no endpoints.")


@remote(slo)
def default(session: Session) -> None:
    """Show the target of endpoints that have none of their own."""
    session.output.answer(session.client.slo.default())


@remote(slo, "set-default")
def set_default(
    session: Session,
    success: Annotated[
        float, typer.Argument(metavar="SHARE", parser=Share, help="The share of deliveries that must succeed: 99.9%")
    ],
    p95: Annotated[
        float, typer.Argument(metavar="SPAN", parser=DurationSeconds, help="The time for 95 % of deliveries: 30s")
    ],
    oldest: Annotated[
        float | None,
        typer.Argument(
            metavar="[SPAN]", parser=DurationSeconds, help="The maximum age of waiting deliveries. [default: 1h]"
        ),
    ] = None,
) -> None:
    """Set the target of endpoints that have none of their own.

    Example: `doorstep slo set-default 99.9% 30s 2h`
    """
    session.output.answer(session.client.slo.set_default(success=success, p95_seconds=p95, oldest_seconds=oldest))


# -- workers -----------------------------------------------------------------------------------------------

_WORKERS = columns(
    "worker state slots tasks seen_at",
    spare="version since handlers",
    worker="name",
    slots=lambda one: f"{one.places_in_use} / {one.places}",
    since="started_at",
)


@remote(commands)
def workers(session: Session) -> None:
    """Show workers, their load, and those lost within a day (default organization only)."""
    session.show_page(session.client.workers.page(), "workers", _WORKERS, "No worker is running.")
