"""Where spans go, by the environment variables that OpenTelemetry has defined for it.

Spans are exported when one of the endpoint variables is set, or OTEL_TRACES_EXPORTER is `otlp`. So a program that sends
its own spans by these variables sends ours to the same place, and nothing is sent anywhere that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from doorstep.errors import ConfigError
from doorstep.telemetry.tracing.recording import Sampler, always, at_most, never, parent_based, ratio

_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOL = "http/protobuf"
_MILLISECONDS_FROM = 500
TRACES_PER_SECOND = 100
"""How many traces one process begins by itself, where no sampler is chosen; those that senders began come on top."""


class Collector(NamedTuple):
    """Who takes the spans, and how they are sent."""

    url: str
    headers: tuple[str, ...]
    """May hold credentials: never worded anywhere."""
    timeout_seconds: float
    compressed: bool
    certificate: str | None
    """A file of certificates to trust, instead of the system's."""
    queue_max: int
    batch_max: int
    delay_seconds: float
    resource: Mapping[str, str]
    sampler: Sampler


def collector_from(environment: Mapping[str, str]) -> Collector | None:
    """None if no spans are to be exported; ConfigError for what cannot be meant."""
    given = _Variables(environment)
    if given.text("OTEL_SDK_DISABLED").lower() == "true" or not _wanted(given):
        return None
    protocol = given.of_otlp("PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be {_PROTOCOL} for traces, got {protocol[:40]!r}")
    return Collector(
        url=_url(given),
        headers=tuple(f"{name}: {value}" for name, value in _pairs(given.of_otlp("HEADERS")).items()),
        timeout_seconds=_timeout_seconds(given),
        compressed=given.of_otlp("COMPRESSION") == "gzip",
        certificate=given.of_otlp("CERTIFICATE") or None,
        queue_max=given.whole("OTEL_BSP_MAX_QUEUE_SIZE", 50_000),
        batch_max=given.whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2_000),
        delay_seconds=given.whole("OTEL_BSP_SCHEDULE_DELAY", 1_000) / 1_000,
        resource=_resource(given),
        sampler=_sampler(given),
    )


class _Variables:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def of_otlp(self, name: str) -> str:
        """What is said for traces goes before what is said for everything."""
        return self.text(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or self.text(f"OTEL_EXPORTER_OTLP_{name}")

    def number(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            number = float(text or default)
        except ValueError:
            number = -1
        if not 0 < number < 1e9:
            raise ConfigError(f"{name} must be a number greater than 0, got {text[:40]!r}")
        return number

    def whole(self, name: str, default: int) -> int:
        number = self.number(name, default)
        if number != int(number):
            raise ConfigError(f"{name} must be a whole number from 1, got {self.text(name)[:40]!r}")
        return int(number)


def _wanted(given: _Variables) -> bool:
    exporter = given.text("OTEL_TRACES_EXPORTER")
    return exporter == "otlp" or (exporter == "" and given.of_otlp("ENDPOINT") != "")


def _url(given: _Variables) -> str:
    """The variable for traces is the whole URL; the general one is where the paths of all signals begin."""
    general = given.text("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
    url = given.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or general.rstrip("/") + "/v1/traces"
    if not url.startswith(("http://", "https://")):
        raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://")
    return url


def _timeout_seconds(given: _Variables) -> float:
    """The specification means milliseconds, the Python SDK seconds: a small number can only be meant as these."""
    general = given.number("OTEL_EXPORTER_OTLP_TIMEOUT", 10)
    timeout = given.number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", general)
    return timeout if timeout < _MILLISECONDS_FROM else timeout / 1_000


def _resource(given: _Variables) -> dict[str, str]:
    said = _pairs(given.text("OTEL_RESOURCE_ATTRIBUTES"))
    return (
        {"service.name": "doorstep"}
        | said
        | ({"service.name": name} if (name := given.text("OTEL_SERVICE_NAME")) else {})
    )


def _pairs(text: str) -> dict[str, str]:
    """`a=1,b=2`, with values in percent-encoding."""
    parts = (part.split("=", 1) for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, value in parts}


def _sampler(given: _Variables) -> Sampler:
    """Every trace costs a fifth of a delivery: unless somebody chose otherwise, we begin no more than a hundred a second."""
    name, share = given.text("OTEL_TRACES_SAMPLER"), _share(given)
    if not name:
        return parent_based(at_most(TRACES_PER_SECOND))
    roots = {"always_on": always, "always_off": never, "traceidratio": ratio(share)}
    root = roots.get(name.removeprefix("parentbased_"))
    if root is None:
        raise ConfigError(
            "OTEL_TRACES_SAMPLER must be one of always_on, always_off, traceidratio, and the same after parentbased_, "
            f"got {name[:40]!r}"
        )
    return parent_based(root) if name.startswith("parentbased_") else root


def _share(given: _Variables) -> float:
    text = given.text("OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, got {text[:40]!r}")
    return share
