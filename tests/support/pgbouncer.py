"""A PgBouncer for tests, from Debian's package. Without it, the tests that need one are skipped, and say so."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.postgres_server import PostgresServer


@contextmanager
def pooling(server: PostgresServer, database: str, roles: Sequence[str], *options: str) -> Iterator[int]:
    """Run a PgBouncer in transaction mode with one server connection for each role. Yields its port."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("PGBOUNCER NOT TESTED: it is not installed (Debian's package pgbouncer)")
    folder, port = Path(tempfile.mkdtemp(prefix="doorstep-pgbouncer-")), free_port()
    (folder / "users").write_text("".join(f'"{role}" ""\n' for role in roles))
    settings = [
        "[databases]",
        f"{database} = host=127.0.0.1 port={server.port}",
        "[pgbouncer]",
        "pool_mode = transaction",
        "default_pool_size = 1",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = trust",
        f"auth_file = {folder / 'users'}",
        *options,
    ]
    (folder / "pgbouncer.ini").write_text("\n".join(settings))
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
    folder.chmod(0o755)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(folder / "pgbouncer.ini")],
            stdout=log,
            stderr=log,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=[] if user else None,
        )
    try:
        _await_listener(port, process, folder / "log")
        yield port
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        shutil.rmtree(folder)


def _await_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PgBouncer did not start:\n{log.read_text()}") from None
            time.sleep(0.01)
