"""What an installation must have: settings that fit, a database with its tables, the right secret key, endpoints in
reach."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

from doorstep import bootstrap
from doorstep.cli.doctor.finding import Finding, ok, problem
from doorstep.cli.running import naming_database
from doorstep.clock import SECOND
from doorstep.config import Settings, setting_rows
from doorstep.errors import ConfigError, DoorstepError
from doorstep.model.endpoint import Endpoint
from doorstep.path.directory import unseal_secret
from doorstep.refusals import TOML_FILE
from doorstep.sealing import UnsealError
from doorstep.stores.opening import sqlite_path
from doorstep.stores.store import Store
from doorstep.telemetry.scrubbing import shown_url
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.reachability import why_unreachable

_CLOCK_SECONDS_MAX = 2.0
_CONNECT_SECONDS = 3.0
_READABLE_BY_OTHERS = 0o077
_REFUSED_MAX = 100


def settings(given: Settings) -> Finding:
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


async def database(given: Settings, store: Store) -> Finding:
    """Whether it can be opened and has this version's tables."""
    place = shown_url(given.database_url)
    try:
        with naming_database(given):
            await store.open()
    except DoorstepError as error:
        sentence, _, remedy = str(error).rpartition("; ")
        return problem("database", sentence or str(error), remedy or "check DOORSTEP_DATABASE_URL")
    return ok("database", f"{place} is open, its tables are those of this version")


async def clock(store: Store) -> Finding:
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


async def outbox(store: Store) -> Finding:
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


def secret_key(given: Settings, endpoints: Sequence[Endpoint]) -> Finding:
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
