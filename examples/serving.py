"""Starts the server of a profile with its simulated counterpart, and keeps both running."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Unpack
from uuid import UUID

from doorstep.client import ApiError, Client, ClientError
from doorstep.schemas.accounts import RoleName
from doorstep.schemas.endpoints import NewEndpointFields
from examples.counterpart import PORT, Counterpart


class Running(NamedTuple):
    """The running server of a profile."""

    admin: Client
    """A client with the admin key."""
    url: str
    receiver: str
    """The URL of the counterpart."""
    folder: Path

    def key(self, name: str, role: RoleName, user_id: str | None = None) -> str:
        """A key for the first commands. Later starts return the same key, unless the database does not know it."""
        file = self.folder / f"{name}.key"
        if file.exists() and not self._knows(file.read_text()):
            file.unlink()
        return _kept(file, lambda: self.admin.keys.create(name, role, user_id=user_id).key)

    def endpoint(self, **fields: Unpack[NewEndpointFields]) -> bool:
        """Create an endpoint, unless an earlier start did. Returns whether it is new."""
        known = any(one.name == fields["name"] for one in self.admin.endpoints.each())
        if not known:
            self.admin.endpoints.create(**fields)
        return not known

    def _knows(self, key: str) -> bool:
        with Client(self.url, key) as client:
            try:
                client.events.status(UUID(int=0))
            except ApiError as error:
                return error.status != 401
        return True


Prepare = Callable[[Running], Iterable[str]]
"""Creates what the first commands need, unless an earlier start did. Returns the lines to print."""

_START_SECONDS_MAX = 30.0


def serve(app: str, prepare: Prepare, *, name: str, counterpart_type: type[Counterpart] = Counterpart) -> int:
    """Run `doorstep serve --app` and the counterpart until Ctrl-C. The environment configures the server as always; if
    it has no DOORSTEP_DATABASE_URL, the data is in `data/<name>`."""
    folder = Path("data", name)
    folder.mkdir(parents=True, exist_ok=True)
    defaults = {
        "DOORSTEP_DATABASE_URL": f"sqlite:///{folder}/doorstep.db",
        "DOORSTEP_ADMIN_KEY": _kept(folder / "admin.key", lambda: "dsk_" + secrets.token_urlsafe(32)),
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOORSTEP_HOST": "127.0.0.1",
        "DOORSTEP_PORT": "8080",
    }
    modules = os.pathsep.join([os.path.abspath(sys.path[0]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = defaults | os.environ | {"PYTHONPATH": modules}
    url = f"http://{environment['DOORSTEP_HOST']}:{environment['DOORSTEP_PORT']}"
    command = [sys.executable, "-m", "doorstep", "serve", "--app", app]
    with (
        counterpart_type(int(os.environ.get("COUNTERPART_PORT", PORT))) as counterpart,
        Client(url, environment["DOORSTEP_ADMIN_KEY"]) as client,
        subprocess.Popen(command, env=counterpart.environment | environment) as server,
    ):
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C also reaches the server, which then ends
        threading.Thread(target=counterpart.serve_forever, daemon=True).start()
        if _is_ready(client, server):
            print(*prepare(Running(client, url, counterpart.url, folder)), sep="\n", flush=True)
        return exit_code(server)


def exit_code(server: subprocess.Popen[bytes]) -> int:
    """Wait until the server ends. Python runs signal handlers between bytecodes only: a signal that arrives just before
    a wait without a timeout is handled after it, so the server would never receive it."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return server.wait(1.0)


def _kept(file: Path, create: Callable[[], str]) -> str:
    """The key in a file that only its owner can read, created at the first start."""
    if not file.exists():
        key = create()
        file.touch(mode=0o600)
        file.write_text(key)
    return file.read_text()


def _is_ready(client: Client, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server responds. False if it has ended; it has then printed why."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while server.poll() is None and time.monotonic() < deadline:
        try:
            client.events.page(limit=1)
            return True
        except ClientError:
            time.sleep(0.1)
    return False
