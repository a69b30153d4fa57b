"""Where jobs are stored: a new database or a new Redis. Each reports its CPU and the number of jobs it still holds."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import psutil

from bench.databases import Database, Databases
from bench.rivals.environment import redis_binary
from bench.setting import variables
from bench.timing import cpu_seconds_of

BrokerName = Literal["sqlite", "postgres", "redis"]
_START_SECONDS_MAX = 10.0


class Broker(Protocol):
    @property
    def variables(self) -> dict[str, str]:
        """The environment variables through which a program finds it."""
        ...

    def cpu_seconds(self) -> float: ...

    def count(self, question: str) -> int:
        """The number that a query returns."""
        ...


@contextmanager
def fresh_broker(name: BrokerName, databases: Databases) -> Iterator[Broker]:
    """An empty broker, deleted afterwards."""
    if name == "redis":
        with _redis() as redis:
            yield redis
    else:
        with databases.fresh(name) as database:
            yield _DatabaseBroker(database)


@dataclass(frozen=True)
class _DatabaseBroker:
    database: Database

    @property
    def variables(self) -> dict[str, str]:
        return variables(self.database) | {"BENCH_DATABASE_URL": self.database.url}

    def cpu_seconds(self) -> float:
        return self.database.server_cpu_seconds()

    def count(self, question: str) -> int:
        ((number,),) = self.database.ask(question)
        return number


@dataclass(frozen=True)
class _Redis:
    port: int
    process: psutil.Popen

    @property
    def variables(self) -> dict[str, str]:
        return {"BENCH_REDIS_URL": f"redis://127.0.0.1:{self.port}/0"}

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.process)

    def count(self, question: str) -> int:
        """The first number in the response."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection, connection.makefile("rwb") as stream:
            stream.write(question.encode() + b"\r\n")
            stream.flush()
            line = stream.readline()
            return int((stream.readline() if line.startswith(b"*") else line)[1:])


@contextmanager
def _redis() -> Iterator[_Redis]:
    """Run Redis with its default configuration: occasional snapshots, no append-only file."""
    with tempfile.TemporaryDirectory(prefix="doorstep-redis-") as folder:
        port = _free_port()
        command = [redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        redis = _Redis(port, psutil.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C"}))
        try:
            _await_ready(redis)
            yield redis
        finally:
            redis.process.kill()
            redis.process.wait()


def _await_ready(redis: _Redis) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        try:
            redis.count("DBSIZE")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
