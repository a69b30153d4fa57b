"""`doorstep doctor`: checks the machine and the installation, and prints a remedy for each problem."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rich.text import Text

from doorstep.bootstrap import check_key, data_path, key_path, pinned, sealer_for
from doorstep.cli.commands import ExitCode
from doorstep.cli.listening import listener
from doorstep.cli.options import settings_from
from doorstep.cli.output import Output, visible
from doorstep.cli.run import naming_database
from doorstep.clock import SECOND
from doorstep.config import TOML_FILE, Settings, setting_rows
from doorstep.errors import ConfigError, DoorstepError
from doorstep.loop_binding import run_until_stopped
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import KeyChecks, Orgs, RejectedMessages, Workers
from doorstep.model.record import Record
from doorstep.stores.open import sqlite_path, store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry.redaction import shown_url
from doorstep.transports.address_guard import AddressGuard, why_unreachable

OK, PROBLEM, SKIPPED = "ok", "problem", "skipped"
_STYLES = {OK: "green", PROBLEM: "bold red", SKIPPED: "yellow"}
_CHECK_WIDTH = 14


class Finding(Record, frozen=True, kw_only=True):
    check: str
    verdict: str
    """`ok`, `problem` or `skipped`."""
    found: str
    remedy: str | None = None
    """The advice for a problem, or how to make a check that was skipped."""

    @property
    def text(self) -> Text:
        """One line of text, and a second line with the remedy, if there is one."""
        text = Text(f"{self.check:{_CHECK_WIDTH}} ")
        text.append(f"{self.verdict:8}", style=_STYLES[self.verdict])
        text.append(visible(self.found))
        if self.remedy is not None:
            text.append(f"\n{'':{_CHECK_WIDTH}} {'':8}→ {visible(self.remedy)}", style="yellow")
        return text


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, verdict=OK, found=found)


def problem(check: str, found: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=PROBLEM, found=found, remedy=remedy)


def skipped(check: str, found: str) -> Finding:
    """A check that needs settings of the server, which this shell may not have."""
    return Finding(check=check, verdict=SKIPPED, found=found, remedy=_WHERE_TO_RUN)


_WHERE_TO_RUN = "run `doorstep doctor` on the server's machine, in its folder, as its user and with its environment"


def _parts(error: DoorstepError, remedy: str = "") -> tuple[str, str]:
    """Split an error message into the finding and its remedy, which comes after the last semicolon."""
    found, semicolon, last = str(error).rpartition("; ")
    return (found, last) if semicolon else (last, remedy)


# -- the machine -------------------------------------------------------------------------------------------

_GIB = 1024**3
_FREE_BYTES_MIN = _GIB // 2
_FSYNC_SECONDS_MAX = 0.05
"""An fsync that takes longer than this is reported as a problem: every commit waits for an fsync, so every sender waits
at least that long."""
_FSYNCS = 7
_REMOTE_DATA = "the data is not on this machine"


def disk_space(folder: Path | None, free_bytes_min: int = _FREE_BYTES_MIN) -> Finding:
    """Checks whether there is enough free disk space. If the disk is full, new events are rejected."""
    if folder is None:
        return ok("disk space", _REMOTE_DATA)
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / _GIB:.1f} GiB free in {folder}"
    if free < free_bytes_min:
        return problem("disk space", found, "make room, or move the data with DOORSTEP_DATABASE_URL")
    return ok("disk space", found)


def disk_speed(folder: Path | None, fsync_seconds_max: float = _FSYNC_SECONDS_MAX) -> Finding:
    """Checks how long an fsync takes."""
    if folder is None:
        return ok("disk speed", _REMOTE_DATA)
    try:
        median = statistics.median(_fsync_seconds(_existing(folder)))
    except OSError as error:
        return problem("disk speed", f"cannot write to {folder}: {error.strerror}", "give this user write permission")
    found = f"an fsync takes {median * 1_000:.1f} ms"
    if median > fsync_seconds_max:
        return problem("disk speed", found, "use a local SSD: every response to a sender waits for one fsync")
    return ok("disk speed", found)


def port(host: str, number: int, is_doorstep: Callable[[], bool]) -> Finding:
    """Checks whether `doorstep serve` can listen on this port, or already does."""
    try:
        listener(host, number).close()
    except DoorstepError as error:
        if is_doorstep():
            return ok("port", f"a Doorstep listens at {host} port {number}")
        return problem("port", *_parts(error))
    return ok("port", f"{host} port {number} is free")


def _fsync_seconds(folder: Path) -> list[float]:
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            started = time.perf_counter()
            file.write(bytes(4_096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - started)
    return taken


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent. The first start creates the missing folders."""
    return next(one for one in (folder, *folder.parents) if one.exists())


# -- the installation --------------------------------------------------------------------------------------

_CLOCK_SECONDS_MAX = 2.0
_CONNECT_SECONDS = 3.0
_READABLE_BY_OTHERS = 0o077
_ANSWER_SECONDS = 2.0
_REJECTED_MAX = 100


def settings_finding(given: Settings) -> Finding:
    """Reports where the settings come from. Reading them has already validated them."""
    count = len(given.model_fields_set & {row.name for row in setting_rows()})
    file = f"{TOML_FILE} was read" if Path(TOML_FILE).exists() else f"there is no {TOML_FILE}"
    return ok("settings", f"{count} of {len(list(setting_rows()))} set, the others have their defaults; {file}")


async def database_finding(given: Settings, store: Store) -> Finding:
    """Checks whether the database can be opened and whether its tables match this version."""
    try:
        with naming_database(given):
            await store.open()
    except DoorstepError as error:
        return problem("database", *_parts(error, "check DOORSTEP_DATABASE_URL"))
    return ok("database", f"{shown_url(given.database_url)} can be opened, and its tables are up to date")


async def clock_finding(store: Store) -> Finding:
    """Checks that this machine, the database and the workers agree on the time. Receivers reject signatures that are
    minutes old."""
    before = time.time()
    theirs = await store.time() / SECOND
    ahead = theirs - (before + time.time()) / 2
    found = "the database uses this machine's clock"
    if store.features.many_machines:
        found = f"the database's clock is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) > _CLOCK_SECONDS_MAX:
        return problem("clock", found, "synchronize both with a time server (NTP)")
    workers = await store.find(None, Workers(seen_after=round((theirs + _CLOCK_SECONDS_MAX) * SECOND), limit=1))
    if workers:
        ahead = workers[0].seen_at / SECOND - theirs
        found = f"the last heartbeat of worker {workers[0].name} is {ahead:.0f} s in the future"
        remedy = (
            "a clock was set back; synchronize this machine, and restart the worker if the next check finds the same"
        )
        return problem("clock", found, remedy)
    return ok("clock", found)


async def outbox_finding(store: Store) -> Finding:
    """Checks whether the outbox contains rejected messages."""
    rejected = await store.find(None, RejectedMessages(limit=_REJECTED_MAX + 1))
    if not rejected:
        return ok("outbox", "no messages were rejected")
    count = f"more than {_REJECTED_MAX}" if len(rejected) > _REJECTED_MAX else str(len(rejected))
    first = f"{rejected[0].event_type} {rejected[0].event_id}: {rejected[0].refusal}"
    return problem(
        "outbox",
        f"{count} rejected messages, the first is {first}",
        "see `doorstep outbox list`, remove the cause, then run `doorstep outbox retry --all`",
    )


async def secret_key_finding(given: Settings, store: Store | None = None) -> Finding:
    """Checks whether the secret key exists and is the key of the database, if there is a database."""
    file = None if given.secret_key else key_path(given)
    known = [] if store is None else await store.find(None, KeyChecks())
    if file is not None and not file.exists():
        if known:
            return problem("secret key", f"{file} is missing, and secrets are encrypted with it", "restore the file")
        return ok("secret key", f"{file} does not exist yet; the first start creates it")
    if file is not None and file.stat().st_mode & _READABLE_BY_OTHERS:
        return problem("secret key", f"{file} can be read by other users", f"chmod 600 {file}")
    if file is None and given.secret_key is None and not given.embedded:
        return skipped(
            "secret key", "DOORSTEP_SECRET_KEY is not set here, so it cannot be compared with the database's"
        )
    try:
        sealer = sealer_for(given)
        if store is not None:
            await check_key(store, given, sealer)
    except ConfigError as error:
        return problem("secret key", *_parts(error))
    return ok(
        "secret key", "it is the key of the database" if known else "it is valid, and the first start will use it"
    )


async def reachability(endpoint: Endpoint, guard: AddressGuard, *, settings_known: bool) -> Finding:
    """Checks whether the address guard allows the endpoint's address, and whether the endpoint accepts connections."""
    if endpoint.url is None:
        return ok("endpoint", f"{endpoint.name}: {endpoint.destination.description}, which needs no connection")
    why = await asyncio.to_thread(why_unreachable, endpoint.url, guard, _CONNECT_SECONDS)
    # The path is omitted, because it can be a credential, as in the URL of a Slack webhook.
    where = re.sub(r"(?<=[^:/])/.*", "/…", shown_url(endpoint.url))
    if why is None:
        return ok("endpoint", f"{endpoint.name}: {where} accepts connections")
    blocked = "guard" in why or "must" in why
    if blocked and not settings_known:
        return skipped("endpoint", f"{endpoint.name}: {where}: {why}; the settings of the server may allow it")
    remedy = "start the receiver, correct the endpoint's URL, or pause the endpoint"
    if blocked:
        remedy = "correct its URL, or allow the range with DOORSTEP_ALLOW_ADDRESSES"
    return problem("endpoint", f"{endpoint.name}: {where}: {why}", remedy)


# -- all checks --------------------------------------------------------------------------------------------


def check_all(database_url: str | None, output: Output) -> int:
    """Print all findings. Return exit code 1 if any of them is a problem."""
    findings: list[Finding] = []

    async def command(_: asyncio.Event) -> None:
        async for finding in _check(database_url):
            findings.append(finding)
            if not output.as_json:
                output.line(finding, finding.text)

    run_until_stopped(command)
    count = Counter(finding.verdict for finding in findings)
    problems = count[PROBLEM]
    if output.as_json:
        output.json({"healthy": not problems, "checks": findings})
    if count[SKIPPED]:
        checks = "1 check was" if count[SKIPPED] == 1 else f"{count[SKIPPED]} checks were"
        output.note(f"{checks} skipped: this shell may not have the settings of the server.")
    if not problems:
        output.note("Everything else is in order." if count[SKIPPED] else "Everything is in order.")
        return ExitCode.OK
    output.note(f"{problems} {'problem' if problems == 1 else 'problems'} found.")
    return ExitCode.FAILED


async def _check(database_url: str | None) -> AsyncIterator[Finding]:
    try:
        settings = settings_from(database_url=database_url)
        store = store_from_url(pinned(settings).database_url)
    except ConfigError as error:
        found, remedy = _parts(error, "correct the settings")
        yield problem("settings", found, f"{remedy}; the other checks need the settings")
        return
    yield settings_finding(settings)
    if _runs_elsewhere(settings):
        yield skipped("server", f"a Doorstep answers at {settings.url}, but this shell has none of its settings")
        return
    yield port(settings.host, settings.port, lambda: _is_doorstep(_local_url(settings)))
    folder = data_path(settings)
    yield disk_space(folder)
    yield disk_speed(folder)
    async for finding in _check_store(settings, store):
        yield finding


async def _check_store(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    path = sqlite_path(settings.database_url)
    if path is not None and not Path(path).exists():
        yield ok("database", f"{shown_url(settings.database_url)} does not exist yet; the first start creates it")
        yield await secret_key_finding(settings)
        return
    database = await database_finding(settings, store)
    yield database
    if database.verdict != OK:
        return
    try:
        orgs = [org.org_id for org in await store.find(None, Orgs())]
        yield await secret_key_finding(settings, store)
        yield await clock_finding(store)
        yield await outbox_finding(store)
        guard = AddressGuard(settings.allow_addresses, allow_http=settings.allow_http)
        for org_id in orgs:
            for routing in await store.routing({org_id: -1}):
                for endpoint in routing.endpoints:
                    yield await reachability(endpoint, guard, settings_known=_has_server_settings(settings))
    finally:
        await store.close()


_CLIENT_SETTINGS = {"url", "api_key", "database_url"}
"""The settings of a shell in which only commands run, not the server."""


def _has_server_settings(settings: Settings) -> bool:
    return bool(settings.model_fields_set - _CLIENT_SETTINGS)


def _runs_elsewhere(settings: Settings) -> bool:
    """Whether there is a server for the commands of this shell, but nothing here belongs to it."""
    path = sqlite_path(settings.database_url)
    here = _has_server_settings(settings) or "database_url" in settings.model_fields_set
    return not here and path is not None and not Path(path).exists() and _is_doorstep(settings.url)


def _local_url(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    return f"http://{host}:{settings.port}"


def _is_doorstep(url: str) -> bool:
    from doorstep.client import NEVER, Client, ClientError

    with Client(url, timeout=_ANSWER_SECONDS, retrying=NEVER) as client:
        try:
            return client.health().status == "ok"
        except ClientError:
            return False
