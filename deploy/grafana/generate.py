"""Writes doorstep.json, the dashboard for Grafana: `python deploy/grafana/generate.py` (`--check` only compares).

Every process reports the values of the whole installation, so each query takes the maximum over all processes, never
their sum. An installation is one Prometheus job. The dashboard shows one job at a time, because a maximum over several
installations would be meaningless. Metrics that begin with `doorstep_process_` describe a single process and are shown
per instance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILE = HERE / "doorstep.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
WIDTH = 24

Query = tuple[str, str]
"""An expression, and the legend of its line."""


def labelled(**labels: str) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in labels.items())


def of(metric: str, labels: str = "") -> str:
    """A metric of the installation that was chosen."""
    return f'{metric}{{job="$job"{", " + labels if labels else ""}}}'


def rate(metric: str, labels: str = "", span: str = RATE) -> str:
    return f"max(rate({of(metric, labels)}[{span}]))"


def increase(metric: str, labels: str = "", span: str = "24h") -> str:
    return f"max(increase({of(metric, labels)}[{span}]))"


def quantile(rank: float) -> str:
    return f"histogram_quantile({rank}, max by (le) (rate({of('doorstep_time_to_delivery_seconds_bucket')}[{RATE}])))"


SUCCEEDED = ("doorstep_attempts_total", labelled(outcome="succeeded"))
SUCCESS_RATE = f"{rate(*SUCCEEDED)} / ({rate(*SUCCEEDED)} + {rate('doorstep_deliveries_dead_total')})"
FAILED, DELIVERED = increase("doorstep_events_failed_total"), increase("doorstep_events_delivered_total")
FAILED_RATE = f"{FAILED} / ({FAILED} + {DELIVERED})"
BY_ENDPOINT = "max by (endpoint, endpoint_id)"


def endpoint_attempts(outcome: str) -> str:
    return f"{BY_ENDPOINT} (increase({of('doorstep_endpoint_attempts_total', labelled(outcome=outcome))}[24h]))"


# -- panels ------------------------------------------------------------------------------------------------


def target(number: int, query: Query, **more: Any) -> dict[str, Any]:
    expression, legend = query
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend,
        "range": True,
        "refId": chr(ord("A") + number),
        **more,
    }


def panel(kind: str, title: str, about: str, queries: Sequence[Query], **more: Any) -> dict[str, Any]:
    size = more.pop("size", (8, 8))
    made: dict[str, Any] = {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"w": size[0], "h": size[1], "x": 0, "y": 0},
        "targets": [target(number, query, **more.get("target", {})) for number, query in enumerate(queries)],
        "fieldConfig": {"defaults": more.get("defaults", {}), "overrides": more.get("overrides", [])},
        "options": more.get("options", {}),
    }
    return made | ({"transformations": more["transformations"]} if "transformations" in more else {})


def lines(title: str, about: str, queries: Sequence[Query], unit: str = "short", **more: Any) -> dict[str, Any]:
    """A chart over time."""
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}
    if more.pop("stacked", False):
        custom |= {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 40}
    defaults = {"unit": unit, "min": 0, "custom": custom, "color": {"mode": "palette-classic"}} | more.pop("fixed", {})
    options = {
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, about, queries, defaults=defaults, options=options, **more)


def number(title: str, about: str, query: str, unit: str, steps: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """One number, green, amber or red."""
    thresholds = {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]}
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
    }
    defaults = {"unit": unit, "thresholds": thresholds, "color": {"mode": "thresholds"}}
    return panel("stat", title, about, [(query, "")], defaults=defaults, options=options, size=(4, 4))


def row(title: str) -> dict[str, Any]:
    return {
        "type": "row",
        "title": title,
        "collapsed": False,
        "panels": [],
        "gridPos": {"w": WIDTH, "h": 1, "x": 0, "y": 0},
    }


def retries() -> dict[str, Any]:
    query = f"max by (le) (increase({of('doorstep_retry_attempts_bucket')}[$__range]))"
    options = {
        "displayMode": "gradient",
        "orientation": "vertical",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "color",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "namePlacement": "auto",
        "sizing": "auto",
    }
    return panel(
        "bargauge",
        "Retry attempts",
        "Deliveries that ended in the selected time range, by the number of retries used.",
        [(query, "{{le}}")],
        target={"format": "heatmap", "instant": True, "range": False},
        defaults={"unit": "short", "decimals": 0, "min": 0, "color": {"mode": "palette-classic"}},
        options=options,
    )


def endpoints() -> dict[str, Any]:
    good = endpoint_attempts("succeeded")
    dead = f"{BY_ENDPOINT} (increase({of('doorstep_endpoint_deliveries_dead_total')}[24h]))"
    columns = {
        "Success rate (24 h)": f"{good} / ({good} + {dead})",
        "Delivered (24 h)": good,
        "Retries (24 h)": endpoint_attempts("retry"),
        "Lost (24 h)": dead,
        "Queue depth": f"{BY_ENDPOINT} ({of('doorstep_endpoint_queue_depth')})",
        "Dead letters": f"{BY_ENDPOINT} ({of('doorstep_endpoint_dead_letters')})",
        "Circuit open": f"{BY_ENDPOINT} ({of('doorstep_endpoint_circuit_open')})",
    }
    renamed = {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(columns)} | {"endpoint": "Endpoint"}
    return panel(
        "table",
        "Endpoints",
        "The busiest endpoints. DOORSTEP_METRICS_ENDPOINTS must be set; it limits their number.",
        [(query, "") for query in columns.values()],
        size=(WIDTH, 9),
        target={"format": "table", "instant": True, "range": False},
        defaults={"custom": {"align": "auto", "filterable": True}, "decimals": 0},
        overrides=[_override("Success rate (24 h)", unit="percentunit", decimals=2)],
        options={"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": "Lost (24 h)", "desc": True}]},
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True, "endpoint_id": True},
                    "indexByName": {},
                    "renameByName": renamed,
                },
            },
        ],
    )


def _override(name: str, **properties: object) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def panels() -> Iterator[dict[str, Any]]:
    yield row("Now")
    yield number(
        "Success rate", "The share of finished deliveries that succeeded.", SUCCESS_RATE, "percentunit",
        [("red", None), ("orange", 0.95), ("green", 0.99)],
    )  # fmt: skip
    yield number(
        "Queue depth", "Deliveries that are waiting or in progress.", f"max({of('doorstep_queue_depth')})", "short",
        [("green", None)],
    )  # fmt: skip
    yield number(
        "Oldest due", "How long the oldest due delivery has waited.", f"max({of('doorstep_oldest_due_seconds')})", "s",
        [("green", None), ("orange", 60), ("red", 300)],
    )  # fmt: skip
    yield number(
        "Dead letters", "Dead letters that nobody has acted on.", f"max({of('doorstep_dead_letters')})", "short",
        [("green", None), ("orange", 1), ("red", 51)],
    )  # fmt: skip
    yield number(
        "Circuits open", "Endpoints to which Doorstep is not sending.", f"max({of('doorstep_circuits', labelled(state='open'))})", "short",
        [("green", None), ("red", 1)],
    )  # fmt: skip
    yield number(
        "Failed events (24 h)", "The share of finished events that failed.", FAILED_RATE, "percentunit",
        [("green", None), ("orange", 0.01), ("red", 0.05)],
    )  # fmt: skip
    yield row("Events")
    yield lines(
        "Events by status", "Stored events, per status.", [(f"max by (status) ({of('doorstep_events')})", "{{status}}")],
        stacked=True,
    )  # fmt: skip
    yield lines(
        "Events per minute",
        "Events that were created, were delivered, or failed.",
        [(f"60 * {rate(f'doorstep_events_{kind}_total')}", kind) for kind in ("created", "delivered", "failed")],
    )
    yield lines(
        "Failed events rate over 24 h", "The share of events finished in the preceding 24 hours that failed.",
        [(FAILED_RATE, "failed")], unit="percentunit",
    )  # fmt: skip
    yield row("Deliveries")
    yield lines(
        "Delivery success rate", "The share of finished deliveries that succeeded.",
        [(SUCCESS_RATE, "success")], unit="percentunit", fixed={"max": 1},
    )  # fmt: skip
    yield lines(
        "Time to delivery", "The time until a delivery succeeded, including waits and retries.",
        [(quantile(0.5), "p50"), (quantile(0.95), "p95"), (quantile(0.99), "p99")], unit="s",
    )  # fmt: skip
    yield retries()
    yield lines(
        "Queue depth over time", "Deliveries that are waiting or in progress, and dead letters.",
        [(f"max({of('doorstep_queue_depth')})", "waiting"), (f"max({of('doorstep_dead_letters')})", "dead letters")],
    )  # fmt: skip
    yield lines(
        "Attempts per minute", "Attempts, per outcome.",
        [(f"60 * max by (outcome) (rate({of('doorstep_attempts_total')}[{RATE}]))", "{{outcome}}")], stacked=True,
    )  # fmt: skip
    yield lines(
        "Oldest due", "How long the oldest due delivery has waited.",
        [(f"max({of('doorstep_oldest_due_seconds')})", "oldest due")], unit="s",
    )  # fmt: skip
    yield row("Endpoints")
    yield lines(
        "Circuits", "Endpoints, per circuit state.",
        [(f"max by (state) ({of('doorstep_circuits')})", "{{state}}")], stacked=True,
    )  # fmt: skip
    yield lines(
        "Endpoints with deliveries waiting",
        "Active endpoints only.",
        [(f"max({of('doorstep_waiting_endpoints')})", "waiting")],
    )
    yield lines(
        "Rejected", "Late results, and attempts that the address guard blocked, in the last 5 minutes.",
        [
            (increase("doorstep_late_settles_total", span="5m"), "late settles"),
            (increase("doorstep_blocked_addresses_total", span="5m"), "blocked addresses"),
        ],
    )  # fmt: skip
    yield endpoints()
    yield lines(
        "Messages about alerts", "Messages to Doorstep's own alert channels: waiting, or dead in the last two weeks.",
        [(f"max by (state) ({of('doorstep_alert_messages')})", "{{state}}")],
    )  # fmt: skip
    yield row("Processes")
    yield lines(
        "CPU", "The share of one core that each process uses.",
        [(f"rate({of('doorstep_process_cpu_seconds_total')}[{RATE}])", "{{instance}}")], unit="percentunit",
    )  # fmt: skip
    yield lines(
        "Memory",
        "Resident memory of each process.",
        [(of("doorstep_process_resident_bytes"), "{{instance}}")],
        unit="bytes",
    )
    yield lines(
        "In progress", "Attempts in flight and waiting accepts, per process.",
        [
            (of("doorstep_process_places_in_use"), "{{instance}} attempts"),
            (of("doorstep_process_accepts_waiting"), "{{instance}} accepts waiting"),
        ],
    )  # fmt: skip
    yield lines(
        "Age of these metrics", "Grows while the store does not respond.",
        [(of("doorstep_process_snapshot_age_seconds"), "{{instance}}")], unit="s",
    )  # fmt: skip
    yield lines(
        "Log lines dropped", "Log lines dropped in the last 5 minutes, because the reader of the log was too slow.",
        [(f"increase({of('doorstep_process_log_lines_dropped_total')}[5m])", "{{instance}}")],
    )  # fmt: skip


def laid_out(made: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields each panel with its id and position: from left to right, in a new row where the current row is full."""
    x = y = height = 0
    for number_, one in enumerate(made, 1):
        place = one["gridPos"]
        if x + place["w"] > WIDTH:
            x, y = 0, y + height
        yield one | {"id": number_, "gridPos": place | {"x": x, "y": y}}
        x, height = x + place["w"], place["h"]


def variables() -> list[dict[str, Any]]:
    return [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1},
        {
            "type": "query",
            "name": "job",
            "label": "Job",
            "datasource": SOURCE,
            "query": {"query": "label_values(doorstep_events_created_total, job)", "refId": "job"},
            "refresh": 2,
            "includeAll": False,
            "multi": False,
        },
    ]


def dashboard() -> dict[str, Any]:
    return {
        "uid": "doorstep",
        "title": "Doorstep",
        "description": "Events, deliveries, retries and endpoints of a Doorstep installation.",
        "tags": ["doorstep"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": list(laid_out(panels())),
    }


def main() -> None:
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif not FILE.exists() or FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what is generated; run python deploy/grafana/generate.py")


if __name__ == "__main__":
    main()
