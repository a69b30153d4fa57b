"""`doorstep doctor`: checks the machine and the installation, and reports what each check found."""

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

from doorstep import bootstrap
from doorstep.bootstrap import data_path, pinned
from doorstep.cli.exits import ExitCode
from doorstep.cli.output import Output, visible
from doorstep.cli.run import naming_database
from doorstep.cli.serve import listener
from doorstep.clock import SECOND
from doorstep.config import Settings, setting_rows
from doorstep.config_errors import TOML_FILE
from doorstep.encryption import UnsealError
from doorstep.engine.directory import unseal_secret
from doorstep.errors import ConfigError, DoorstepError
from doorstep.model.endpoint import Endpoint
from doorstep.model.record import Record
from doorstep.signals import run_until_stopped
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
    """What to do; problems have one."""

    @property
    def words(self) -> Text:
        """One line for people, and one more with the remedy."""
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


GIB = 1024**3
_FREE_BYTES_MIN = GIB // 2
_FSYNC_SECONDS_MAX = 0.05
"""A commit waits for one fsync; at 50 ms no sender sees an answer sooner than that."""
_FSYNCS = 7
_ELSEWHERE = "the data is not on this machine"


def disk_space(folder: Path | None, free_bytes_min: int = _FREE_BYTES_MIN) -> Finding:
    """Whether there is room for the data. A full disk refuses new events."""
    if folder is None:
        return ok("disk space", _ELSEWHERE)
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / GIB:.1f} GiB free in {folder}"
    if free < free_bytes_min:
        return problem("disk space", found, "make room, or move the data with DOORSTEP_DATABASE_URL")
    return ok("disk space", found)


def disk_speed(folder: Path | None, fsync_seconds_max: float = _FSYNC_SECONDS_MAX) -> Finding:
    """How long the disk takes to promise that something is kept (fsync)."""
    if folder is None:
        return ok("disk speed", _ELSEWHERE)
    try:
        median = statistics.median(_fsync_seconds(_existing(folder)))
    except OSError as error:
        return problem("disk speed", f"{folder} cannot be written: {error.strerror}", "let this user write there")
    found = f"an fsync takes {median * 1_000:.1f} ms"
    if median > fsync_seconds_max:
        return problem("disk speed", found, "use a local SSD: every answer to a sender waits for one fsync")
    return ok("disk speed", found)


def port(host: str, number: int, is_doorstep: Callable[[], bool]) -> Finding:
    """Whether `doorstep serve` could listen there, or does so already."""
    try:
        listener(host, number).close()
    except DoorstepError as error:
        if is_doorstep():
            return ok("port", f"a Doorstep listens at {host} port {number}")
        sentence, _, remedy = str(error).partition("; ")
        return problem("port", sentence, remedy)
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
    """The folder, or the one in which the first start will make it."""
    return next(one for one in (folder, *folder.parents) if one.exists())


_CLOCK_SECONDS_MAX = 2.0
_CONNECT_SECONDS = 3.0
_READABLE_BY_OTHERS = 0o077
_REFUSED_MAX = 100


def settings_finding(given: Settings) -> Finding:
    """They have been checked when they were read; what is left to say is where they come from."""
    count = len(given.model_fields_set & {row.name for row in setting_rows()})
    file = f"{TOML_FILE} is read" if Path(TOML_FILE).exists() else f"there is no {TOML_FILE}"
    return ok("settings", f"{count} of {len(list(setting_rows()))} given, the others are defaults; {file}")


def first_start(given: Settings) -> Finding | None:
    """What to say of an embedded database that nobody has started yet; None for any other."""
    path = sqlite_path(given.database_url)
    if path is None or Path(path).exists():
        return None
    return ok("database", f"{shown_url(given.database_url)} is not there yet; the first start makes it")


async def database_finding(given: Settings, store: Store) -> Finding:
    """Whether it can be opened and has this version's tables."""
    place = shown_url(given.database_url)
    try:
        with naming_database(given):
            await store.open()
    except DoorstepError as error:
        sentence, _, remedy = str(error).rpartition("; ")
        return problem("database", sentence or str(error), remedy or "check DOORSTEP_DATABASE_URL")
    return ok("database", f"{place} is open, its tables are those of this version")


async def clock_finding(store: Store) -> Finding:
    """Whether this machine and the database agree on the time: receivers refuse signatures that are minutes old."""
    if not store.capabilities.many_machines:
        return ok("clock", "the database uses this machine's clock")
    before = time.time()
    theirs = await store.time() / SECOND
    ahead = theirs - (before + time.time()) / 2
    found = f"the database's clock is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) > _CLOCK_SECONDS_MAX:
        return problem("clock", found, "let both follow a time server (NTP)")
    return ok("clock", found)


async def outbox_finding(store: Store) -> Finding:
    """Whether programs have posted anything that can never be accepted."""
    refused = await store.refused(_REFUSED_MAX + 1)
    if not refused:
        return ok("outbox", "nothing in it had to be set aside")
    count = f"{_REFUSED_MAX} and more" if len(refused) > _REFUSED_MAX else str(len(refused))
    first = f"{refused[0].event_type} {refused[0].event_id}: {refused[0].refusal}"
    return problem(
        "outbox",
        f"set aside {count}, the first is {first}",
        "see `doorstep outbox list`, repair the cause, then `doorstep outbox retry --all`",
    )


def secret_key_finding(given: Settings, endpoints: Sequence[Endpoint]) -> Finding:
    """Whether the key that unseals the endpoints' secrets is there, and is the right one."""
    file = bootstrap.key_path(given)
    sealed = [endpoint for endpoint in endpoints if endpoint.secrets]
    if given.secret_key is None and file is not None:
        if not file.exists():
            return _missing(file, bool(sealed))
        if file.stat().st_mode & _READABLE_BY_OTHERS:
            return problem("secret key", f"{file} can be read by other users", f"chmod 600 {file}")
    try:
        sealer = bootstrap.sealer_for(given)
        for endpoint in sealed:
            unseal_secret(endpoint, sealer, endpoint.secrets[0].sealed)
    except UnsealError:
        remedy = (
            "give back the key that was used when they were created (DOORSTEP_SECRET_KEY, or the file of that time)"
        )
        return problem("secret key", "it does not open the endpoints' secrets, which another key has sealed", remedy)
    except ConfigError as error:
        sentence, _, remedy = str(error).partition("; ")
        return problem("secret key", sentence, remedy)
    return ok("secret key", f"there, and it opens the secrets of {len(sealed)} endpoints")


async def reachability(endpoint: Endpoint, guard: AddressGuard) -> Finding:
    """Whether a connection to the endpoint can be made, as far as the address guard lets it."""
    check = "endpoint"
    if endpoint.url is None:
        return ok(check, f"{endpoint.name}: the handler {endpoint.handler}, called by workers that have it")
    why = await asyncio.to_thread(why_unreachable, endpoint.url, guard, _CONNECT_SECONDS)
    # The path may be a credential, as that of a channel to Slack is, and nothing that is found out here is about it.
    where = re.sub(r"(?<=[^:/])/.*", "/…", shown_url(endpoint.url))
    if why is None:
        return ok(check, f"{endpoint.name}: {where} accepts connections")
    return problem(check, f"{endpoint.name}: {where}: {why}", _remedy(why))


def _remedy(why: str) -> str:
    if "guard" in why or "must" in why:
        return "correct its URL, or allow the range with DOORSTEP_ALLOW_ADDRESSES"
    return "start the receiver, correct the endpoint's URL, or pause the endpoint"


def _missing(file: Path, needed: bool) -> Finding:
    if needed:
        return problem(
            "secret key", f"{file} is missing, and endpoints have secrets sealed with it", "restore the file"
        )
    return ok("secret key", f"{file} is not there yet; the first start makes it")


_ANSWER_SECONDS = 2.0


def examine(database_url: str | None, output: Output) -> int:
    """Print the findings; the exit code is 1 if there is a problem among them."""
    findings: list[Finding] = []

    async def command(_: asyncio.Event) -> None:
        async for finding in _findings(database_url):
            findings.append(finding)
            if not output.as_json:
                output.line(finding, finding.words)

    run_until_stopped(command)
    problems = sum(finding.verdict == PROBLEM for finding in findings)
    if output.as_json:
        output.json({"healthy": not problems, "checks": findings})
    output.note(_summary(problems))
    return ExitCode.FAILED if problems else ExitCode.OK


async def _findings(database_url: str | None) -> AsyncIterator[Finding]:
    try:
        settings = Settings() if database_url is None else Settings(database_url=database_url)
        store = store_from_url(pinned(settings).database_url)
    except ConfigError as error:
        sentence, _, remedy = str(error).rpartition("; ")
        yield problem("settings", sentence or str(error), f"{remedy}; the other checks need the settings")
        return
    yield settings_finding(settings)
    yield port(settings.host, settings.port, lambda: _is_doorstep(settings))
    yield disk_space(data_path(settings))
    yield disk_speed(data_path(settings))
    async for finding in _of_store(settings, store):
        yield finding


async def _of_store(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    if untouched := first_start(settings):
        yield untouched
        yield secret_key_finding(settings, ())
        return
    database = await database_finding(settings, store)
    yield database
    if database.verdict != OK:
        return
    try:
        endpoints = (await store.routing()).endpoints
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

    place = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    with Client(f"http://{place}:{settings.port}", timeout=_ANSWER_SECONDS, retrying=NEVER) as client:
        try:
            return client.health().status == "ok"
        except ClientError:
            return False


def _summary(problems: int) -> str:
    if not problems:
        return "Everything is in order."
    return f"{problems} {'problem' if problems == 1 else 'problems'} found."
