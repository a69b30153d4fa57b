"""Writes the pages that are generated from the code, so that they cannot say anything else.

python docs/generate.py           writes docs/states.md, settings.md, commands.md, api.md and metrics.md
python docs/generate.py --check   fails if they are not up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from doorstep.api.application import create_application
from doorstep.api.openapi import operations
from doorstep.app import Doorstep
from doorstep.cli.exits import MEANINGS
from doorstep.cli.main import app as cli
from doorstep.config import setting_rows
from doorstep.model.delivery import TRANSITION_TABLE, DeliveryState
from doorstep.model.event import EVENT_TRANSITIONS, EventStatus
from doorstep.model.permission import ALLOWED
from doorstep.model.rollup import TTD_SECONDS
from doorstep.path.measures import MEASURES, RETRY_BOUNDS
from doorstep.schemas.endpoints import INPUTS
from doorstep.telemetry.metrics import PROCESS

DOCS = Path(__file__).parent

EVENT_MEANINGS = {
    EventStatus.RECEIVED: "Accepted; nothing has been picked up yet.",
    EventStatus.QUEUED: "At least one delivery has been picked up, and not all are settled.",
    EventStatus.DELIVERED: "Every delivery is delivered or resolved, or the inbox consumer acknowledged the event.",
    EventStatus.FAILED: "Nothing is left to try, and at least one delivery is dead (or all were cancelled).",
}

STATE_MEANINGS = {
    DeliveryState.PENDING: "Waiting for its due time. Held, if its endpoint is paused, disabled or its circuit open.",
    DeliveryState.IN_PROGRESS: "Claimed by a worker, under a lease.",
    DeliveryState.DELIVERED: "The receiver accepted it. Final.",
    DeliveryState.DEAD: "In the dead-letter queue. Final for the machine; only an operator or archiving changes it.",
    DeliveryState.RESOLVED: "An operator said that it needs no delivery.",
    DeliveryState.ARCHIVED: "A dead letter that nobody touched for a week; hidden from the usual lists.",
    DeliveryState.CANCELLED: "Called off before it was delivered.",
}


def states_page() -> str:
    lines = [
        "# States",
        "",
        "This page is generated from the tables in `model/delivery.py` and `model/event.py`. Every pair that is not",
        "listed is refused, by the code and by a trigger in the database.",
        "",
        "## Deliveries",
        "",
        "A delivery is one event owed to one endpoint. It is the thing that has a state.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> pending: accepted",
        *(f"    {row.source} --> {row.target}: {row.why.replace(',', '')}" for row in TRANSITION_TABLE),
        "```",
        "",
        "| state | meaning |",
        "| --- | --- |",
        *(f"| `{state}` | {STATE_MEANINGS[state]} |" for state in DeliveryState),
        "",
        "| from | to | by | when |",
        "| --- | --- | --- | --- |",
        *(f"| `{row.source}` | `{row.target}` | {row.by} | {row.why} |" for row in TRANSITION_TABLE),
        "",
        "## Events",
        "",
        "An event's status is what its deliveries add up to.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> received: accepted",
        *(f"    {source} --> {target}" for source, target in sorted(EVENT_TRANSITIONS)),
        "```",
        "",
        "| status | meaning |",
        "| --- | --- |",
        *(f"| `{status}` | {EVENT_MEANINGS[status]} |" for status in EventStatus),
        "",
    ]
    return "\n".join(lines)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "This page is generated from `config.py`. A value comes from an argument, else from the environment variable,",
        "else from a line in `doorstep.toml` (the name in lower case), else it is the default. A setting that is",
        "unknown or out of bounds stops the start with a sentence that names it.",
        "",
        "| variable | default | rule | what it does |",
        "| --- | --- | --- | --- |",
        *(f"| `{row.variable}` | {_code(row.default)} | {row.rule} | {row.about} |" for row in setting_rows()),
        "",
    ]
    return "\n".join(lines)


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "This page is generated from the command line's own help. `doorstep --install-completion` adds completion to",
        "your shell. Commands that talk to a server find it and the key in `DOORSTEP_URL` and `DOORSTEP_API_KEY`. With",
        "`--json`, standard output is JSON and nothing else; what is said to people goes to standard error.",
        "",
        "| exit code | meaning |",
        "| --- | --- |",
        *(f"| {code.value} | {about} |" for code, about in MEANINGS.items()),
        "",
    ]
    return "\n".join([*lines, *_commands(typer.main.get_command(cli), "doorstep", "##")])


def _commands(group: Any, path: str, mark: str) -> Iterator[str]:
    for name, command in group.commands.items():
        yield from (f"{mark} `{path} {name}`", "", _paragraphs(command.help or ""), "")
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}", f"{mark}#")
        else:
            yield from _options(command.params)


def _options(params: Sequence[Any]) -> Iterator[str]:
    shown = [param for param in params if not getattr(param, "hidden", False)]
    if not shown:
        return
    yield from ("| option | what it is |", "| --- | --- |")
    for param in shown:
        named = (
            ", ".join((*param.opts, *param.secondary_opts)) if param.opts[0].startswith("-") else param.opts[0].upper()
        )
        yield f"| `{named}` | {(param.help or '').replace('|', ', ')} |"
    yield ""


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def api_page() -> str:
    described = create_application(Doorstep("memory://")).openapi()
    lines = [
        "# HTTP API",
        "",
        "This page is generated from the API's own description, which a running Doorstep gives in full, with the shape",
        "of every request and answer, at `/openapi.json`, and to read at `/docs`. Paths under `/v1` need a key:",
        "`X-API-Key`, or `Authorization: Bearer`. Errors are `application/problem+json`.",
        "",
        "## Roles",
        "",
        "| role | may |",
        "| --- | --- |",
        *(f"| `{role}` | {', '.join(sorted(allowed))} |" for role, allowed in ALLOWED.items()),
        "",
        "## Routes",
        "",
        "| request | does | needs |",
        "| --- | --- | --- |",
    ]
    for line, operation in operations(described):
        lines.append(f"| `{line}` | {operation['description']} | {operation.get('x-permission', '')} |")
    return "\n".join([*lines, "", *_endpoint_settings(described["components"]["schemas"]), ""])


def _endpoint_settings(schemas: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## Settings of endpoints",
        "",
        "What `POST /v1/endpoints` takes. `PATCH` takes the same but for `signing`, and puts a field back to its default",
        "where it is null.",
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
        yield f"| `{one.name}` | {_value(shape, schemas)} | {_code(default)} | {_code(option)} | {one.label} |"


def _resolved(shape: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """What is behind a reference, or the object among several forms."""
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
    return " or ".join(_form(one, schemas) for one in forms)


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


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "This page is generated from the table in `path/measures.py`. What they mean together, and how to add them up over",
        "processes, is in [observability.md](observability.md#metrics).",
        "",
        "## Of the whole installation",
        "",
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(_metric(one.name, one.kind, one.labels, one.about) for one in MEASURES),
        "",
        f"Time to delivery has buckets up to {_bounds(TTD_SECONDS)} seconds; retries up to {_bounds(RETRY_BOUNDS)}.",
        "",
        "## Of one process",
        "",
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(_metric(name, kind, (), about) for name, (kind, about) in PROCESS.items()),
        "",
    ]
    return "\n".join(lines)


def _metric(name: str, kind: str, labels: Sequence[str], about: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {about} |"


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
    stale = [name for name, page in PAGES.items() if _read(DOCS / name) != page()]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/{name} is not up to date; run python docs/generate.py")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name]())
        print(f"wrote docs/{name}")
    return 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
