"""Exceptions that say that another system did not answer, by Python and by the usual client libraries."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.error
from types import SimpleNamespace
from typing import Any

import asyncpg
import httpx2
import psycopg
import pytest
import requests
import sqlalchemy.exc
import urllib3.exceptions

from doorstep.transports.call_errors import judged


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def foreign(library: str, *names: str) -> BaseException:
    """An exception of a library that is not installed here: its classes, from the most general to the most specific."""
    kind: type[BaseException] = Exception
    for name in names:
        kind = type(name, (kind,), {"__module__": f"{library}.exceptions"})
    return kind("canary")


def grpc_error(status: str) -> BaseException:
    error = foreign("grpc", "RpcError", "AioRpcError")
    error.code = lambda: SimpleNamespace(name=status)  # type: ignore[attr-defined]
    return error


CASES: dict[str, list[BaseException]] = {
    "TIMEOUT": [
        TimeoutError(),
        requests.Timeout(),
        requests.ConnectTimeout(),
        requests.ReadTimeout(),
        caused(requests.ConnectionError(), urllib3.exceptions.ReadTimeoutError(None, "", "")),  # type: ignore[arg-type]
        urllib3.exceptions.ConnectTimeoutError(),
        httpx2.ReadTimeout(""),
        httpx2.PoolTimeout(""),
        foreign("httpx", "TransportError", "TimeoutException", "ReadTimeout"),
        foreign("aiohttp", "ClientConnectionError", "ServerTimeoutError", "SocketTimeoutError"),
        foreign("botocore", "BotoCoreError", "ConnectionError", "ConnectTimeoutError"),
        foreign("psycopg_pool", "PoolTimeout"),
        grpc_error("DEADLINE_EXCEEDED"),
        foreign("grpc", "FutureTimeoutError"),
        psycopg.errors.QueryCanceled(),
        psycopg.errors.ConnectionTimeout(),
        asyncpg.QueryCanceledError(),
        sqlalchemy.exc.TimeoutError(),
        urllib.error.URLError(TimeoutError()),
        ExceptionGroup("tasks", [TimeoutError(), TimeoutError()]),
    ],
    "CONNECTION": [
        grpc_error("UNAVAILABLE"),
        ConnectionError(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        OSError(errno.EHOSTUNREACH, "no route"),
        http.client.RemoteDisconnected(),
        asyncio.IncompleteReadError(b"", 1),
        ssl.SSLEOFError(),
        requests.ConnectionError(),
        urllib3.exceptions.ProtocolError(),
        httpx2.ConnectError(""),
        httpx2.RemoteProtocolError(""),
        foreign("aiohttp", "ClientError", "ClientConnectionError", "ServerDisconnectedError"),
        foreign("botocore", "BotoCoreError", "ConnectionError", "EndpointConnectionError"),
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown(),
        asyncpg.ConnectionDoesNotExistError(),
        sqlalchemy.exc.OperationalError("SELECT 1", {}, psycopg.OperationalError("gone")),
        urllib.error.URLError(ConnectionRefusedError()),
    ],
    "DNS": [
        socket.gaierror(),
        caused(httpx2.ConnectError(""), socket.gaierror()),
        caused(requests.ConnectionError(), caused(urllib3.exceptions.HTTPError(), socket.gaierror())),
        foreign("aiohttp", "ClientConnectionError", "ClientConnectorError", "ClientConnectorDNSError"),
        urllib.error.URLError(socket.gaierror()),
    ],
    "TLS": [
        ssl.SSLError(),
        ssl.SSLCertVerificationError(),
        requests.exceptions.SSLError(),
        caused(httpx2.ConnectError(""), ssl.SSLCertVerificationError()),
    ],
}

MISTAKES: list[BaseException] = [
    KeyError("timeout"),
    OSError(errno.ENOSPC, "disk full"),
    FileNotFoundError(),
    requests.HTTPError(),
    requests.exceptions.InvalidURL(),
    httpx2.UnsupportedProtocol(""),
    urllib.error.URLError("unknown url type"),
    urllib3.exceptions.MaxRetryError(None, "", urllib3.exceptions.ResponseError()),  # type: ignore[arg-type]
    psycopg.errors.DeadlockDetected(),
    psycopg.errors.DiskFull(),
    asyncpg.UniqueViolationError(),
    sqlalchemy.exc.OperationalError("SELECT 1", {}, psycopg.errors.DiskFull()),
    foreign("shop", "TimeoutError"),
    caused(RuntimeError("no answer"), TimeoutError()),
    ExceptionGroup("tasks", [TimeoutError(), KeyError()]),
]


@pytest.mark.parametrize("code", CASES)
def test_an_unanswered_call_has_the_code_of_its_cause_whichever_library_made_it(code: str) -> None:
    wrong: dict[str, Any] = {repr(error): judged(error) for error in CASES[code] if not is_judged(error, code)}
    assert not wrong


def is_judged(error: BaseException, code: str) -> bool:
    found = judged(error)
    return found is not None and found[0] == code and type(error).__name__ in found[1] and found[1].endswith(".")


def test_any_other_exception_stays_a_mistake_of_the_handler() -> None:
    assert {repr(error): judged(error) for error in MISTAKES if judged(error)} == {}
