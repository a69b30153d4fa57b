"""An installation of Doorstep as an operator would run it: a server, workers, a database, receivers."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

from doorstep.encryption import new_secret_key
from tests.faults.harness.databases import Database
from tests.faults.harness.evidence import ROUTES
from tests.faults.harness.processes import Keeper, KeptProcess
from tests.faults.harness.receiver import PERSONALITIES
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port

ADMIN_KEY = "dk_the_harness_0123456789"
LEASE_SECONDS = 2.0
CONCURRENCY = 64
CALM = {"DOORSTEP_LEASE_SECONDS": "12", "DOORSTEP_TIMEOUT_SECONDS": "8"}
"""For trials without lost workers: long enough that a busy machine causes no timeouts of its own."""
_ROOT = Path(__file__).parents[3]
_STARTED = "A Doorstep worker delivers"

_PATIENT = [0.2, 0.3, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
_SHORT = [0.2, 0.3]
_NO_CIRCUIT = {"failures_max": 1_000_000}
ENDPOINTS: Mapping[str, Mapping[str, Any]] = {
    "ok": {"policy": _PATIENT, "circuit": _NO_CIRCUIT},
    "flaky": {"policy": _PATIENT, "circuit": _NO_CIRCUIT},
    "slow": {"policy": _PATIENT, "circuit": _NO_CIRCUIT},
    "dead": {"policy": _SHORT, "circuit": _NO_CIRCUIT},
    "dribble": {"policy": _SHORT, "circuit": _NO_CIRCUIT},
    "endless": {"policy": _PATIENT, "circuit": _NO_CIRCUIT},
    "reset": {"policy": _SHORT, "circuit": _NO_CIRCUIT},
    "mending": {"policy": _PATIENT, "circuit": _NO_CIRCUIT},
    "recovering": {"policy": _PATIENT, "circuit": {"failures_max": 5, "open_seconds": 1.0}},
    "blinking": {},
}
"""The settings of each receiver's endpoint. Endpoints that must succeed have enough retries for every kill; `blinking` has
the default policy and circuit."""


class Reply(NamedTuple):
    """A response of the API."""

    status: int
    headers: Message
    answer: Any


class Installation:
    """All processes and files of one trial. Only the nemesis and `close` end processes."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        *,
        settings: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "doorstep"),
    ) -> None:
        self.folder = folder
        self.database = database
        self.port = free_port()
        self.keeper = Keeper()
        self.receivers: list[KeptProcess] = []
        self.workers: list[KeptProcess] = []
        self.program = list(program)
        self.environment = _environment(database) | dict(settings or {})
        self.lease_seconds = float(self.environment["DOORSTEP_LEASE_SECONDS"])
        self.engine_environment: dict[str, str] = {}
        """Environment variables for Doorstep's own processes only."""
        self._ports = {name: free_port() for name in ENDPOINTS}

    # -- starting ------------------------------------------------------------------------------------------

    def serve(self, *, workers: int = 0, wrapper: Sequence[str] = ()) -> KeptProcess:
        """Start `doorstep serve` and wait until it answers. A wrapper is a command that runs it, for example strace."""
        command = [*wrapper, *self.program, "serve", "--port", str(self.port), "--workers", str(workers)]
        environment = self.environment | self.engine_environment
        self.server = self.keeper.keep(KeptProcess("serve", command, environment, self.folder))
        self.await_ready()
        return self.server

    def add_worker(self, *arguments: str) -> KeptProcess:
        """Start another `doorstep worker`, and wait until it works."""
        name = f"worker-{len(self.workers) + 1}"
        command = [*self.program, "worker", *arguments]
        worker = KeptProcess(name, command, self.environment | self.engine_environment, self.folder)
        self.workers.append(self.keeper.keep(worker))
        await_condition(lambda: _STARTED in worker.said, f"{name} to start", said=self._said)
        return worker

    def receive(self, *names: str) -> KeptProcess:
        """Start one process that plays these receivers."""
        places = [f"{name}={self._ports[name]}" for name in names if name in PERSONALITIES]
        name = f"receiver-{len(self.receivers) + 1}"
        command = [
            sys.executable,
            "-m",
            "tests.faults.harness.receiver",
            str(self.folder / f"{name}.arrivals"),
            *places,
        ]
        receiver = self.keeper.keep(KeptProcess(name, command, self.environment, self.folder))
        self.receivers.append(receiver)
        return receiver

    def enrol(self, *event_types: str) -> None:
        """Create the endpoints for these event types."""
        for name in sorted({receiver for event_type in event_types for receiver in ROUTES[event_type]}):
            taken = [event_type for event_type in event_types if name in ROUTES[event_type]]
            target = {"handler": name} if name == "handler" else {"url": f"http://127.0.0.1:{self._ports[name]}/{name}"}
            form = {"name": name, "event_types": taken, **target, **ENDPOINTS.get(name, {"circuit": _NO_CIRCUIT})}
            status, answer = self.ask("POST", "/v1/endpoints", form)
            assert status == 201, answer

    # -- requests ------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Make one API call as the administrator."""
        reply = self.ask_in_full(method, path, body)
        return reply.status, reply.answer

    def ask_in_full(self, method: str, path: str, body: object = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            headers = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return Reply(response.status, response.headers, json.loads(response.read() or b"null"))
        finally:
            connection.close()

    def await_ready(self, seconds_max: float = PATIENCE_SECONDS) -> float:
        """Wait until the server and its store answer; return how long that took."""
        return await_condition(self._ready, "doorstep serve to be ready", seconds_max, said=self._said)

    def _ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def _said(self) -> str:
        """The last output of every process, for the error message of a failed wait."""
        return "\n".join(f"{process.name}: {process.said[-3_000:]}" for process in self.keeper.processes)

    # -- ending --------------------------------------------------------------------------------------------

    @property
    def engines(self) -> list[KeptProcess]:
        """Doorstep's own processes."""
        return [self.server, *self.workers]

    @property
    def everyone(self) -> list[KeptProcess]:
        return [*self.engines, *self.receivers]

    def stop(self) -> dict[str, int]:
        """Stop Doorstep gracefully; return exit codes by process name."""
        return {process.name: process.stop() for process in self.engines}

    def close(self) -> None:
        for process in self.everyone:
            process.resume()
        self.keeper.close()
        self.database.heal()


def await_condition(
    condition: Callable[[], object],
    what: str,
    seconds_max: float = PATIENCE_SECONDS,
    *,
    said: Callable[[], str] = str,
) -> float:
    """Wait until the condition holds; return how long that took. On a timeout, the error includes `said()`."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started >= seconds_max:
            raise AssertionError(f"waited {seconds_max} s in vain for {what}\n{said()}")
        time.sleep(0.02)
    return time.monotonic() - started


def _environment(database: Database) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOORSTEP_")}
    return clean | {
        "PYTHONPATH": str(_ROOT),
        "DOORSTEP_DATABASE_URL": database.url,
        "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
        "DOORSTEP_SECRET_KEY": new_secret_key(),
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOORSTEP_LEASE_SECONDS": str(LEASE_SECONDS),
        "DOORSTEP_TIMEOUT_SECONDS": "1",
        "DOORSTEP_CONCURRENCY": str(CONCURRENCY),
        "DOORSTEP_GRACE_SECONDS": "5",
        "DOORSTEP_LOG_FORMAT": "json",
    }
