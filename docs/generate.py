"""Generates the reference pages that mirror tables in the code, so that they cannot drift from it.

python docs/generate.py           writes states.md, settings.md, commands.md, api.md and metrics.md in docs/reference
python docs/generate.py --check   fails if any of them is out of date
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from inspect import getdoc
from pathlib import Path
from typing import Any

from doorstep.api.application import create_application
from doorstep.api.openapi import operations
from doorstep.app import Doorstep
from doorstep.cli.commands import MEANINGS
from doorstep.cli.main import command_tree
from doorstep.config import setting_rows
from doorstep.model.delivery import TRANSITION_TABLE, DeliveryState
from doorstep.model.event import EVENT_TRANSITIONS, EventStatus
from doorstep.model.org import ALLOWED
from doorstep.model.rollup import RESPONSE_SECONDS, TTD_SECONDS
from doorstep.schemas.endpoints import DESTINATIONS, INPUTS
from doorstep.telemetry.metrics import MEASURES, RETRY_BOUNDS
from doorstep.telemetry.prometheus import PROCESS, TIMED
from doorstep.telemetry.timings import SECONDS

FOLDER = Path(__file__).parent / "reference"

Described = tuple[str, str]
"""An option or an argument of a command: its names, and its help."""

EVENT_MEANINGS = {
    EventStatus.RECEIVED: "Accepted. No worker has claimed a delivery yet.",
    EventStatus.QUEUED: "A worker has claimed at least one delivery, and not all deliveries are settled.",
    EventStatus.DELIVERED: "Every delivery is delivered or resolved, or an inbox consumer acknowledged the event.",
    EventStatus.FAILED: "No retries are left and at least one delivery is dead, or all deliveries were cancelled.",
}

STATE_MEANINGS = {
    DeliveryState.PENDING: "Waiting for its due time. Held while its endpoint is paused or disabled, or its circuit is open.",
    DeliveryState.IN_PROGRESS: "Claimed by a worker, under a lease.",
    DeliveryState.DELIVERED: "The receiver accepted it. Final.",
    DeliveryState.DEAD: "In the dead-letter queue. Doorstep no longer retries it; only an operator or archiving changes it.",
    DeliveryState.RESOLVED: "An operator marked it as needing no delivery.",
    DeliveryState.ARCHIVED: "A dead letter that nobody acted on for a week. Hidden from the default lists.",
    DeliveryState.CANCELLED: "Cancelled before it was delivered.",
}


def states_page() -> str:
    lines = [
        "# States",
        "",
        "This page is generated from the tables in `model/delivery.py` and `model/event.py`. The code and a database",
        "trigger both reject any transition that is not listed here.",
        "",
        "## Deliveries",
        "",
        "A delivery is one event owed to one endpoint. Each delivery has a state.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> pending: accepted",
        *(f"    {row.source} --> {row.target}: {row.why.replace(',', '')}" for row in TRANSITION_TABLE),
        "```",
        "",
        "| state | meaning |",
        "| --- | --- |",
        *(_row(_code(state), STATE_MEANINGS[state]) for state in DeliveryState),
        "",
        "| from | to | by | when |",
        "| --- | --- | --- | --- |",
        *(_row(_code(row.source), _code(row.target), row.by, row.why) for row in TRANSITION_TABLE),
        "",
        "## Events",
        "",
        "The status of an event is derived from the states of its deliveries.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> received: accepted",
        *(f"    {source} --> {target}" for source, target in sorted(EVENT_TRANSITIONS)),
        "```",
        "",
        "| status | meaning |",
        "| --- | --- |",
        *(_row(_code(status), EVENT_MEANINGS[status]) for status in EventStatus),
        "",
    ]
    return "\n".join(lines)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "This page is generated from `config.py`. Doorstep takes each value from the first of these that sets it: an",
        "argument, the environment variable, a line in `doorstep.toml` (the name in lower case, without `DOORSTEP_`), the",
        "default. If a setting is unknown or out of range, Doorstep refuses to start and names it.",
        "",
        "| variable | default | allowed values | description |",
        "| --- | --- | --- | --- |",
        *(_row(_code(row.variable), _code(row.default), row.rule, row.about) for row in setting_rows()),
        "",
    ]
    return "\n".join(lines)


def commands_page() -> str:
    commands = command_tree()
    shared = shared_options(commands)
    lines = [
        "# Commands",
        "",
        "This page is generated from the help texts of the command line. To add shell completion, run",
        "`doorstep --install-completion`.",
        "",
        "## Exit codes",
        "",
        "| exit code | meaning |",
        "| --- | --- |",
        *(_row(str(code.value), about) for code, about in MEANINGS.items()),
        "",
        "## Shared options",
        "",
        "The tables of the commands below do not repeat these options. With `--json`, standard output contains only JSON,",
        "and messages for people go to standard error.",
        "",
        "| option | description | not accepted by |",
        "| --- | --- | --- |",
        *(_row(_code(named), about, ", ".join(map(_code, without))) for (named, about), without in shared.items()),
        "",
    ]
    return "\n".join([*lines, *_commands(commands, "doorstep", "##", shared)])


def shared_options(group: Any) -> dict[Described, list[str]]:
    """The options that most commands accept with the same description, and the commands that do not accept them."""
    taken = {path: _described(command.params) for path, command in _leaves(group, "doorstep")}
    counts = Counter(option for options in taken.values() for option in options)
    shared = (option for option, count in counts.items() if count > len(taken) / 2)
    return {option: [path for path, options in taken.items() if option not in options] for option in shared}


def _leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _commands(group: Any, path: str, mark: str, shared: Container[Described]) -> Iterator[str]:
    for name, command in group.commands.items():
        yield from (f"{mark} `{path} {name}`", "", _paragraphs(command.help or ""), "")
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}", f"{mark}#", shared)
        else:
            yield from _options([option for option in _described(command.params) if option not in shared])


def _options(options: Sequence[Described]) -> Iterator[str]:
    if options:
        yield from ("| option | description |", "| --- | --- |")
        yield from (_row(_code(named), about) for named, about in options)
        yield ""


def _described(params: Sequence[Any]) -> list[Described]:
    """Options by their flags, arguments by their name in capitals."""
    visible = (param for param in params if not getattr(param, "hidden", False))
    return [(", ".join(_names(param)), param.help or "") for param in visible]


def _names(param: Any) -> list[str]:
    return [*param.opts, *param.secondary_opts] if param.opts[0].startswith("-") else [param.opts[0].upper()]


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def api_page() -> str:
    described = create_application(Doorstep("memory://")).openapi()
    lines = [
        "# HTTP API",
        "",
        "This page is generated from the OpenAPI document. A running server publishes that document, with the schema of",
        "every request and response, at `/openapi.json`, and a readable version at `/docs`. Routes under `/v1` need an API",
        "key in the header `X-API-Key` or `Authorization: Bearer`. Errors are `application/problem+json`.",
        "",
        "## Roles",
        "",
        "| role | permissions |",
        "| --- | --- |",
        *(_row(_code(role), ", ".join(sorted(allowed))) for role, allowed in ALLOWED.items()),
        "",
        "## Routes",
        "",
        "| route | description | permission |",
        "| --- | --- | --- |",
    ]
    for line, operation in operations(described):
        lines.append(_row(_code(line), operation["description"], operation.get("x-permission", "")))
    return "\n".join([*lines, "", *_endpoint_settings(described["components"]["schemas"]), ""])


def _endpoint_settings(schemas: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## Settings of endpoints",
        "",
        "The fields of `POST /v1/endpoints`. `PATCH` accepts the same fields except `signing`; null resets a field to its",
        "default.",
        "",
        "| field | value | default | option | in the console |",
        "| --- | --- | --- | --- | --- |",
    )
    for one in INPUTS:
        shape: Any = schemas["EndpointIn"]
        for part in one.name.split("."):
            shape = _resolved(shape, schemas)["properties"][part]
        default = json.dumps(shape["default"], ensure_ascii=False) if "default" in shape else ""
        option = one.option.partition("/")[0]
        yield _row(_code(one.name), _value(shape, schemas), _code(default), _code(option), one.label)
    yield from (
        "",
        "The kinds of `destination`. Two of them have a short form, a field of the endpoint itself.",
        "",
        "| kind | fields | short form | meaning |",
        "| --- | --- | --- | --- |",
    )
    for kind, destination in DESTINATIONS.items():
        fields = ", ".join(map(_code, destination.__struct_fields__))
        meaning = getdoc(destination.__mro__[1]) or ""  # the docstring of the response's shape, not of the request's
        yield _row(_code(kind), fields, _code(destination.short), meaning)


def _resolved(shape: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference points to, or the object among several alternatives."""
    for form in (shape, *(inner for one in shape.get("anyOf", ()) for inner in (one, *one.get("anyOf", ())))):
        if "$ref" in form:
            found: dict[str, Any] = schemas[form["$ref"].rpartition("/")[2]]
            return found
    return shape


def _value(shape: dict[str, Any], schemas: dict[str, Any]) -> str:
    """The kind of a value and its bounds."""
    forms = [one for one in shape.get("anyOf", (shape,)) if one.get("type") != "null"]
    if len(forms) == 1 and "anyOf" in forms[0]:
        forms = forms[0]["anyOf"]
    return " or ".join(dict.fromkeys(_form(one, schemas) for one in forms))


def _form(form: dict[str, Any], schemas: dict[str, Any]) -> str:
    if "$ref" in form or form.get("type") == "object":
        return "object"
    if "enum" in form:
        return ", ".join(f"`{one}`" for one in form["enum"])
    if form["type"] == "array":
        kind, _, bounds = _value(form["items"], schemas).partition(", ")
        return f"list of at most {form['maxItems']:,} {kind}s" + (f", each {bounds}" if bounds else "")
    if "minimum" in form:
        least, most = (f"{form[end]:,}" if end in form else "" for end in ("minimum", "maximum"))
        return f"{form['type']}, {least} to {most}" if most else f"{form['type']}, from {least}"
    return f"string of at most {form['maxLength']:,} characters" if "maxLength" in form else form["type"]


def _row(*cells: str) -> str:
    """One row of a table, on a single line. A line break or an unescaped `|` in a cell would break the table."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "This page is generated from the table in `telemetry/metrics.py`. [observability.md](observability.md#metrics)",
        "explains how the metrics relate to each other, and how to aggregate them over processes.",
        "",
        "## Installation-wide",
        "",
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(_metric(one.name, one.kind, one.labels, one.about) for one in MEASURES),
        "",
        f"Bucket bounds: time to delivery {_bounds(TTD_SECONDS)} seconds.",
        f"Response time: {_bounds(RESPONSE_SECONDS)} seconds. Retries: {_bounds(RETRY_BOUNDS)}.",
        "",
        "## Per process",
        "",
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(_metric(name, kind, (), about) for name, (kind, about) in PROCESS.items()),
        *(_metric(one.name, one.kind, one.labels, one.about) for one in TIMED),
        "",
        f"Bucket bounds: {_bounds(SECONDS)} seconds.",
        "",
    ]
    return "\n".join(lines)


def _metric(name: str, kind: str, labels: Sequence[str], about: str) -> str:
    return _row(_code(name), kind, ", ".join(map(_code, labels)), about)


def _bounds(bounds: Sequence[float]) -> str:
    return ", ".join(f"{bound:,g}" for bound in bounds)


PAGES = {
    "states.md": states_page,
    "settings.md": settings_page,
    "commands.md": commands_page,
    "api.md": api_page,
    "metrics.md": metrics_page,
}


def main() -> int:
    texts = {name: page() for name, page in PAGES.items()}
    stale = [name for name, text in texts.items() if _read(FOLDER / name) != text]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/reference/{name} is out of date; run python docs/generate.py")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(texts[name])
        print(f"wrote docs/reference/{name}")
    return 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
