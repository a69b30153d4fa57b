"""Messages through Apprise, each in a process of its own that is ended when its time is over."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from contextlib import suppress

import msgspec

from doorstep.errors import Permanent, Transient
from doorstep.model.attempt import Code
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.apprise_child import Answer, Order

PYTHON = (sys.executable, "-P")
"""Without the working directory among its code: our database and keys are there."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "NETRC": "/dev/null",
}
"""Nothing of ours: no secrets, no proxies, and no passwords of whoever we run as."""
FOLDER = "/"


def is_installed() -> bool:
    return importlib.util.find_spec("apprise") is not None


async def send_by_apprise(url: str, message: dict[str, str], guard: AddressGuard, timeout_seconds: float) -> None:
    """Transient or Permanent where it was not sent; what Apprise itself says about it may hold secrets, and is not told."""
    order = Order(url=url, allow=guard.allowed, own=guard.own, **message)
    answer = await _ask(order, timeout_seconds)
    if answer.sent:
        return
    if answer.blocked:
        raise Permanent(Code.BLOCKED, f"The address guard refuses it: {answer.blocked}.")
    if answer.why:
        raise Permanent(Code.REJECTED, f"{answer.why}.")
    raise Transient(Code.SERVICE_UNAVAILABLE, "Apprise could not send it.")


async def _ask(order: Order, timeout_seconds: float) -> Answer:
    process = await asyncio.create_subprocess_exec(
        *PYTHON,
        "-m",
        "doorstep.transports.apprise_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=ENVIRONMENT,
        cwd=FOLDER,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            said, _ = await process.communicate(msgspec.json.encode(order))
    except TimeoutError:
        raise Transient(Code.TIMEOUT, "Apprise took too long.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(said.strip().rpartition(b"\n")[2], type=Answer)
    except msgspec.MsgspecError:
        raise Transient(Code.HANDLER_CRASHED, f"Apprise's process ended with {process.returncode}.") from None
