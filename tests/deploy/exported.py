"""The names and labels of the metrics that the program exports, and the metrics that a PromQL expression asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import promql_parser as promql

from doorstep.telemetry.metrics import MEASURES, Kind
from doorstep.telemetry.prometheus import PROCESS, TIMED

OF_EVERY_SERIES = {"job", "instance"}
OF_PROMETHEUS = {"up": OF_EVERY_SERIES}


def series() -> dict[str, set[str]]:
    """The labels of each series, by the name of the series."""
    known: dict[str, set[str]] = {name: set(OF_EVERY_SERIES) for name in PROCESS}
    for measure in (*MEASURES, *TIMED):
        labels = OF_EVERY_SERIES | set(measure.labels)
        if measure.kind is Kind.HISTOGRAM:
            known |= {
                f"{measure.name}_bucket": labels | {"le"},
                f"{measure.name}_sum": labels,
                f"{measure.name}_count": labels,
            }
        else:
            known[measure.name] = labels
    return known


def selectors(expression: str) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each selector of an expression, with the nodes that enclose it, outermost first."""
    yield from _walk(promql.parse(expression), ())


def _walk(node: Any, around: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    if isinstance(node, promql.VectorSelector):
        yield node, around
        return
    inside = (*around, node)
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if isinstance(child := getattr(node, name, None), promql.Expr):
            yield from _walk(child, inside)
    for child in getattr(node, "args", ()) if isinstance(node, promql.Call) else ():
        yield from _walk(child, inside)


_OF_EACH_PROCESS = ("doorstep_process_", *(one.name for one in TIMED))


def complaints(expression: str) -> Iterator[str]:
    """Names and labels in an expression that the program does not export, and sums that would count an installation
    repeatedly."""
    known = series() | OF_PROMETHEUS
    for selector, around in selectors(expression):
        if selector.name not in known:
            yield f"{selector.name} is not exported"
            continue
        asked = {matcher.name for matcher in selector.matchers.matchers}
        asked |= {label for node in around if isinstance(node, promql.AggregateExpr) for label in _by(node)}
        if unknown := asked - known[selector.name]:
            yield f"{selector.name} has no label {', '.join(sorted(unknown))}"
        own = selector.name in OF_PROMETHEUS or selector.name.startswith(_OF_EACH_PROCESS)
        if not own and not any(_is_maximum(node) for node in around):
            yield f"{selector.name} is not taken as a maximum over the processes"
        if not own and not _of_one_job(selector, around):
            yield f"{selector.name} is a maximum over several installations"


def _by(node: Any) -> list[str]:
    return list(node.modifier.labels) if node.modifier is not None else []


def _of_one_job(selector: Any, around: tuple[Any, ...]) -> bool:
    """Whether the selector names a job, or every aggregation around it keeps jobs apart."""
    named = any(one.name == "job" and one.op == promql.MatchOp.Equal for one in selector.matchers.matchers)
    return named or all("job" in _by(node) for node in around if isinstance(node, promql.AggregateExpr))


def _is_maximum(node: Any) -> bool:
    return isinstance(node, promql.AggregateExpr) and str(node.op) == "max"
