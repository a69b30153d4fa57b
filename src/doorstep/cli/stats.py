"""`doorstep stats` and `doorstep slo`: what happened, how endpoints fare, and whether that is as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.endpoint_names import complete_endpoint, endpoint_id_of
from doorstep.cli.options import parsed_by, share, span_seconds
from doorstep.cli.remote import REMOTE_PANEL, Paging, Session, gather, remote
from doorstep.schemas import stats as shapes

if TYPE_CHECKING:
    from doorstep.schemas.stats import Report


looking = typer.Typer()
slo = typer.Typer(no_args_is_help=True, help="Targets of endpoints: success, time to delivery, error budget and burn.")

Range = Annotated[shapes.Range | None, typer.Option("--range", help="Tell what happened in this time.")]


@remote(looking, rich_help_panel=REMOTE_PANEL)
def stats(
    session: Session,
    range: Range = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", autocompletion=complete_endpoint, help="Only this one, by its id or its name."),
    ] = None,
) -> None:
    """Show how much waits for a retry, is dead, is in the inbox; with --range also what happened, as small charts.

    Example: `doorstep stats --range 24h`
    """
    endpoint_id = None if endpoint is None else endpoint_id_of(session.client, endpoint)
    found = session.client.stats(range, endpoint_id=endpoint_id)
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
    """Each series with what it comes to."""
    summary, series = report.sum, report.series
    yield f"last {report.range}", f"{report.since:%Y-%m-%d %H:%M} to now, UTC"
    if series.events is not None and summary.events is not None:
        for name, values in series.events.items():
            yield f"events {name}", _chart(values, f"{summary.events[name]:,}", sum)
    yield "success rate", _chart(series.success_rate, columns.percent(summary.success_rate), min)
    for name in ("p50", "p95", "p99"):
        yield f"time {name}", _chart(series.time_to_delivery[name], columns.span(summary.time_to_delivery[name]), max)
    yield "queue depth", _chart(series.queue_depth, f"{series.queue_depth[-1]:,} now", max)
    yield "dead letters", _chart(series.dead_letters, f"{series.dead_letters[-1]:,} now", max)
    retries = [one["deliveries"] for one in summary.retry_attempts]
    yield "retries used", f"{sparkline(retries)}  {', '.join(f'{used}: {n:,}' for used, n in enumerate(retries) if n)}"


def _chart(values: Sequence[float | None], said: str, put_together: Callable[..., float]) -> str:
    return f"{sparkline(values, put_together=put_together)}  {said}"


@remote(slo, "list")
def list_slo(session: Session, paging: Paging) -> None:
    """Show each endpoint against its target over 30 days, and how quickly its error budget burns."""
    rows = gather(session.client.slo.page, paging)
    rows.show(session.output, "endpoints", columns.SLO, "There are no endpoints.")


@remote(slo)
def default(session: Session) -> None:
    """Show the target that counts for endpoints without one of their own."""
    session.output.answer(session.client.slo.default())


@remote(slo, "set-default")
def set_default(
    session: Session,
    success: Annotated[
        float, typer.Argument(metavar="SHARE", parser=parsed_by(share), help="What is to arrive: 99.9%")
    ],
    p95: Annotated[
        float, typer.Argument(metavar="SPAN", parser=parsed_by(span_seconds), help="How soon 95 % of it: 30s")
    ],
    oldest: Annotated[
        float | None,
        typer.Argument(
            metavar="[SPAN]", parser=parsed_by(span_seconds), help="How old what waits may be: 1h, if nothing is said"
        ),
    ] = None,
) -> None:
    """Set that target.

    Example: `doorstep slo set-default 99.9% 30s 2h`
    """
    session.output.answer(session.client.slo.set_default(success=success, p95_seconds=p95, oldest_seconds=oldest))


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
