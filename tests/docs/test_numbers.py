"""The numbers and names in the guides match the code."""

from __future__ import annotations

import re

from doorstep.api import codec, middleware
from doorstep.cli import connections
from doorstep.config import Settings
from doorstep.engine import accept
from doorstep.engine.directory import Tuning
from doorstep.model.bulk import IN_FLIGHT_MAX, LIVE_MAX
from doorstep.model.org import ALLOWED
from doorstep.operations import bulk, endpoints, keys
from doorstep.operations import keys as keyring
from doorstep.operations.bulk_steps import WINDOW_MAX
from doorstep.policy import payload
from doorstep.schemas import events
from doorstep.stores.limits import COUNT_MAX, EXAMINED_MAX
from doorstep.telemetry.metrics import MEASURES
from doorstep.transports.http import HttpTransport
from tests.docs.pages import EXPLANATION, HOW_TO, REFERENCE, ROOT, rows

KIB = 1024
SECURITY, OPERATING, GLOSSARY = EXPLANATION / "security.md", HOW_TO / "operating.md", REFERENCE / "glossary.md"


def test_the_limits_are_those_of_the_code() -> None:
    settings = Settings()
    written = {what: limit for what, limit, _ in rows(SECURITY, "## Limits")}
    assert written == {
        "payload of an event": f"{settings.payload_bytes_max // KIB} KiB",
        "batch request": f"{events.BATCH_MAX:,} events, {settings.batch_bytes_max // KIB**2} MiB",
        "any other request": f"{codec.SMALL_BODY_BYTES_MAX // KIB} KiB",
        "headers of a request": (
            f"{connections.HEADERS_MAX}; the URL and each header {connections.LINE_BYTES_MAX // KIB} KiB, "
            f"all of them {connections.HEAD_BYTES_MAX // KIB} KiB"
        ),
        "nesting of JSON, digits of a number": f"{payload.DEPTH_MAX}, {payload.DIGITS_MAX}",
        "metadata of an event": f"{accept._METADATA_BYTES_MAX // KIB} KiB",
        "idempotency key, ordering key": f"{accept._KEY_CHARACTERS_MAX} characters",
        "requests per key, on each process": "none by default; a limit allows bursts of two seconds' worth",
        "requests without a valid key, per client on each process": (
            f"{settings.failed_keys_per_second:g} a second, with bursts of two seconds' worth"
        ),
        "open connections, on each process": "the limit on open files, less a reserve",
        "connections that have shown no valid key, per client on each process": f"{settings.keyless_connections_max}",
        "wait for headers, for the next part of a body, between requests": (
            f"{settings.header_timeout_seconds:g} s, {settings.body_timeout_seconds:g} s, "
            f"{settings.idle_timeout_seconds:g} s"
        ),
        "endpoints per organization": f"{settings.endpoints_max:,}",
        "one attempt": f"{settings.timeout_seconds:g} s in all",
        "part of a response that is read and kept": f"{_default(HttpTransport, 'body_bytes_max') // KIB} KiB",
        "valid keys per organization": f"{keyring._VALID_MAX:,}",
        "page of a list": "200 (events and inbox 1,000)",
    }
    assert (settings.requests_per_second, middleware._BURST_SECONDS) == (0, 2)


def test_the_settings_that_change_limits_exist() -> None:
    named = re.findall(r"`DOORSTEP_([A-Z_]+)`", "".join(row[2] for row in rows(SECURITY, "## Limits")))
    assert len(named) == 11
    assert [name for name in named if not hasattr(Settings(), name.lower())] == []


def test_the_roles_are_those_of_the_code() -> None:
    assert {row[0].strip("`") for row in rows(SECURITY, "## Roles")} == set(ALLOWED)


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    security, operating = (" ".join(page.read_text().split()) for page in (SECURITY, OPERATING))
    architecture = " ".join((ROOT / "ARCHITECTURE.md").read_text().split())
    assert f"its first {keys._PREFIX_CHARACTERS} characters" in security
    assert f"within {keyring.CACHE_SECONDS} seconds" in security
    assert f"the same unknown key at most once in {keyring.CACHE_SECONDS} seconds" in security
    assert f"at most {keyring._LOOKUPS_MAX} unknown keys at a time" in security
    assert f"more than {Settings().failed_keys_per_second:g} requests a second without a valid key" in security
    assert endpoints.OVERLAP_SECONDS == 86_400 and "(a day by default," in security
    assert f"at most {endpoints._OVERLAP_SECONDS_MAX / 86_400:g})" in security
    assert f"At most {endpoints._SECRETS_MAX} secrets of an endpoint can be valid at the same time" in security
    assert f"at most {WINDOW_MAX} retried deliveries wait for one endpoint" in operating
    assert f"An operation has at most {IN_FLIGHT_MAX:,} deliveries in flight" in operating
    assert f"At most {LIVE_MAX} operations of an organization" in operating
    assert f"counts the deliveries of an operation up to {bulk._COUNTED_MAX:,}" in operating
    assert f"the replay of a time range sends {bulk._REPLAY_RATE:g} events a second" in operating
    assert Tuning().revive_after_seconds == 5 and "is due in five seconds" in operating
    assert f"up to {COUNT_MAX:,}" in operating
    assert f"at most {EXAMINED_MAX:,} index entries and a count at most {COUNT_MAX:,}" in architecture
    assert f"removed after {Settings().inbox_retention_days:g} days" in operating


def test_the_metrics_to_watch_are_some_that_there_are() -> None:
    table = rows(OPERATING, "## Monitoring")
    named = {name for row in table for name in re.findall(r"`(doorstep_\w+)`", row[0])}
    assert named <= {measure.name for measure in MEASURES}


def test_the_glossary_is_in_alphabetical_order_and_has_each_word_once() -> None:
    words = [row[0].lower() for row in rows(GLOSSARY, "# Glossary")]
    assert words == sorted(set(words))


def _default(transport: type, name: str) -> int:
    default: int = transport.__init__.__kwdefaults__[name]  # type: ignore[misc]
    return default
