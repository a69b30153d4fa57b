"""Test matrices as loops: one test with one set of fixtures runs every case and reports each one that fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

_NAMED = ("__name__", "name", "id")


def each_case(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Iterable[str] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `pytest.mark.parametrize`, but all cases are one test and share its fixtures.

    For cases that leave nothing behind that could affect another case. A thousand parametrised tests cost seconds of
    CPU in every test process before the first one runs.
    """
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    table = dict(_labelled(parameters, list(cases), ids))

    def looped(test: Callable[..., Any]) -> Callable[..., Any]:
        given = inspect.signature(test).parameters
        wanted = [one for one in given.values() if one.name not in parameters]
        inner = "subtests" in given
        if not inner:
            wanted.append(inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD))

        def calls(fixtures: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
            kept = fixtures if inner else {name: value for name, value in fixtures.items() if name != "subtests"}
            for label, case in table.items():
                yield label, {**kept, **case}

        @wraps(test)
        def loop(**fixtures: Any) -> None:
            for label, arguments in calls(fixtures):
                with fixtures["subtests"].test(label):
                    test(**arguments)

        @wraps(test)
        async def asynchronous(**fixtures: Any) -> None:
            for label, arguments in calls(fixtures):
                with fixtures["subtests"].test(label):
                    await test(**arguments)

        made = asynchronous if inspect.iscoroutinefunction(test) else loop
        made.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
        return made

    return looped


def _labelled(
    names: tuple[str, ...], cases: list[Any], ids: Iterable[str] | Callable[[Any], object] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    labels = (
        [ids(case) if callable(ids) else _label(case) for case in cases] if ids is None or callable(ids) else list(ids)
    )
    for number, (label, case) in enumerate(zip(labels, cases, strict=True)):
        values = case if len(names) > 1 else (case,)
        yield f"{number} {label}", dict(zip(names, values, strict=True))


def _label(case: Any) -> str:
    """A short name for a case. A failing assertion shows the whole case."""
    found: Iterator[Any] = (getattr(case, name) for name in _NAMED if hasattr(case, name))
    return str(next(found, repr(case)))[:100]
