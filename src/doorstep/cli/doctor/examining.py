"""Goes through the checks in the order in which they matter and tells what each found. It changes nothing: no tables
are made, no key is generated, nothing is sent to any endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from doorstep.bootstrap import data_path, pinned
from doorstep.cli.doctor import installation, machine
from doorstep.cli.doctor.finding import OK, PROBLEM, Finding, problem
from doorstep.cli.exits import ExitCode
from doorstep.cli.output import Output
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.stopping import run_until_stopped
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from doorstep.wire.address_guard import AddressGuard

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
    yield installation.settings(settings)
    yield machine.port(settings.host, settings.port, lambda: _is_doorstep(settings))
    yield machine.disk_space(data_path(settings))
    yield machine.disk_speed(data_path(settings))
    async for finding in _of_store(settings, store):
        yield finding


async def _of_store(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    if untouched := installation.first_start(settings):
        yield untouched
        yield installation.secret_key(settings, ())
        return
    database = await installation.database(settings, store)
    yield database
    if database.verdict != OK:
        return
    try:
        endpoints = (await store.routing()).endpoints
        yield installation.secret_key(settings, endpoints)
        yield await installation.clock(store)
        yield await installation.outbox(store)
        guard = AddressGuard(settings.allow_addresses, allow_http=settings.allow_http)
        for endpoint in endpoints:
            yield await installation.reachability(endpoint, guard)
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
