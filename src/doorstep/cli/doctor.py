"""`doorstep doctor`: checks the machine and the installation, and prints a remedy for each problem."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rich.text import Text

from doorstep.bootstrap import data_path, key_path, pinned, sealer_for
from doorstep.cli.commands import ExitCode
from doorstep.cli.options import settings_from
from doorstep.cli.output import Output, visible
from doorstep.cli.run import naming_database
from doorstep.cli.serve import listener
from doorstep.clock import SECOND
from doorstep.config import TOML_FILE, Settings, setting_rows
from doorstep.encryption import UnsealError
from doorstep.engine.directory import current_routing, unseal_secret
from doorstep.errors import ConfigError, DoorstepError
from doorstep.loop_binding import run_until_stopped
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import RejectedMessages
from doorstep.model.record import Record
from doorstep.stores.open import sqlite_path, store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry.redaction import shown_url
from doorstep.transports.address_guard import AddressGuard, why_unreachable

OK, PROBLEM = "ok", "problem"
_STYLES = {OK: "green", PROBLEM: "bold red"}
_CHECK_WIDTH = 14


class Finding(Record, frozen=True, kw_only=True):
    check: str
    verdict: str
    """`ok` or `problem`."""
    found: str
    remedy: str | None = None
    """The advice for a problem."""

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
    """Checks that this machine and the database agree on the time. Receivers reject signatures that are minutes old."""
    if not store.features.many_machines:
        return ok("clock", "the database uses this machine's clock")
    before = time.time()
    theirs = await store.time() / SECOND
    ahead = theirs - (before + time.time()) / 2
    found = f"the database's clock is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) > _CLOCK_SECONDS_MAX:
        return problem("clock", found, "synchronize both with a time server (NTP)")
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


def secret_key_finding(given: Settings, endpoints: Sequence[Endpoint]) -> Finding:
    """Checks whether the secret key exists and can decrypt the endpoints' secrets."""
    file = key_path(given)
    sealed = [endpoint for endpoint in endpoints if endpoint.secrets]
    if given.secret_key is None and file is not None:
        if not file.exists() and sealed:
            found = f"{file} is missing, and endpoints have secrets encrypted with it"
            return problem("secret key", found, "restore the file")
        if not file.exists():
            return ok("secret key", f"{file} does not exist yet; the first start creates it")
        if file.stat().st_mode & _READABLE_BY_OTHERS:
            return problem("secret key", f"{file} can be read by other users", f"chmod 600 {file}")
    try:
        sealer = sealer_for(given)
        for endpoint in sealed:
            unseal_secret(endpoint, sealer, endpoint.secrets[0].sealed)
    except UnsealError:
        remedy = "restore the key that was used when they were created (DOORSTEP_SECRET_KEY, or the key file)"
        return problem("secret key", "it cannot decrypt the endpoints' secrets, which another key encrypted", remedy)
    except ConfigError as error:
        return problem("secret key", *_parts(error))
    return ok("secret key", f"it opens the secrets of {len(sealed)} endpoints")


async def reachability(endpoint: Endpoint, guard: AddressGuard) -> Finding:
    """Checks whether the address guard allows the endpoint's address, and whether the endpoint accepts connections."""
    if endpoint.url is None:
        return ok("endpoint", f"{endpoint.name}: {endpoint.destination.description}, which needs no connection")
    why = await asyncio.to_thread(why_unreachable, endpoint.url, guard, _CONNECT_SECONDS)
    # The path is omitted, because it can be a credential, as in the URL of a Slack webhook.
    where = re.sub(r"(?<=[^:/])/.*", "/…", shown_url(endpoint.url))
    if why is None:
        return ok("endpoint", f"{endpoint.name}: {where} accepts connections")
    remedy = "start the receiver, correct the endpoint's URL, or pause the endpoint"
    if "guard" in why or "must" in why:
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
    problems = sum(finding.verdict == PROBLEM for finding in findings)
    if output.as_json:
        output.json({"healthy": not problems, "checks": findings})
    if not problems:
        output.note("Everything is in order.")
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
    yield port(settings.host, settings.port, lambda: _is_doorstep(settings))
    folder = data_path(settings)
    yield disk_space(folder)
    yield disk_speed(folder)
    async for finding in _check_store(settings, store):
        yield finding


async def _check_store(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    path = sqlite_path(settings.database_url)
    if path is not None and not Path(path).exists():
        yield ok("database", f"{shown_url(settings.database_url)} does not exist yet; the first start creates it")
        yield secret_key_finding(settings, ())
        return
    database = await database_finding(settings, store)
    yield database
    if database.verdict != OK:
        return
    try:
        endpoints = (await current_routing(store)).endpoints
        yield secret_key_finding(settings, endpoints)
        yield await clock_finding(store)
        yield await outbox_finding(store)
        guard = AddressGuard(settings.allow_addresses, allow_http=settings.allow_http)
        for endpoint in endpoints:
            yield await reachability(endpoint, guard)
    finally:
        await store.close()


def _is_doorstep(settings: Settings) -> bool:
    from doorstep.client import NEVER, Client, ClientError

    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    with Client(f"http://{host}:{settings.port}", timeout=_ANSWER_SECONDS, retrying=NEVER) as client:
        try:
            return client.health().status == "ok"
        except ClientError:
            return False
