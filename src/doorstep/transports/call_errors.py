"""Recognizes the exceptions with which Python and the usual client libraries report that another system did not answer:
timeouts, lost connections, unknown host names, failed TLS handshakes.

The libraries are recognized by the names of their classes. None of them is imported.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from doorstep.model.attempt import Code

_SENTENCES = {
    Code.TIMEOUT: "The handler waited too long for another system ({kind}).",
    Code.CONNECTION: "The handler could not connect to another system, or lost the connection ({kind}).",
    Code.DNS: "The handler could not find the address of another system ({kind}).",
    Code.TLS: "The handler could not establish a TLS connection to another system ({kind}).",
}

_CODES = {
    "builtins.TimeoutError": Code.TIMEOUT,
    "builtins.ConnectionError": Code.CONNECTION,
    "socket.gaierror": Code.DNS,
    "socket.herror": Code.DNS,
    "ssl.SSLEOFError": Code.CONNECTION,
    "ssl.SSLZeroReturnError": Code.CONNECTION,
    "ssl.SSLError": Code.TLS,
    "asyncio.IncompleteReadError": Code.CONNECTION,
    "http.IncompleteRead": Code.CONNECTION,
    "smtplib.SMTPServerDisconnected": Code.CONNECTION,
    "requests.Timeout": Code.TIMEOUT,
    "requests.ConnectTimeout": Code.TIMEOUT,
    "requests.SSLError": Code.TLS,
    "requests.ConnectionError": Code.CONNECTION,
    "requests.ChunkedEncodingError": Code.CONNECTION,
    "urllib3.TimeoutError": Code.TIMEOUT,
    "urllib3.NameResolutionError": Code.DNS,
    "urllib3.NewConnectionError": Code.CONNECTION,
    "urllib3.ProxyError": Code.CONNECTION,
    "urllib3.ProtocolError": Code.CONNECTION,
    "urllib3.SSLError": Code.TLS,
    **{
        f"{library}.{name}": code
        for library in ("httpx", "httpx2", "httpcore", "httpcore2")
        for name, code in (
            ("TimeoutException", Code.TIMEOUT),
            ("NetworkError", Code.CONNECTION),
            ("RemoteProtocolError", Code.CONNECTION),
            ("ProxyError", Code.CONNECTION),
        )
    },
    "aiohttp.ServerTimeoutError": Code.TIMEOUT,
    "aiohttp.ClientConnectorDNSError": Code.DNS,
    "aiohttp.ClientSSLError": Code.TLS,
    "aiohttp.ClientConnectionError": Code.CONNECTION,
    "aiohttp.ClientPayloadError": Code.CONNECTION,
    "botocore.ConnectTimeoutError": Code.TIMEOUT,
    "botocore.ReadTimeoutError": Code.TIMEOUT,
    "botocore.SSLError": Code.TLS,
    "botocore.ConnectionError": Code.CONNECTION,
    "botocore.ConnectionClosedError": Code.CONNECTION,
    "botocore.ResponseStreamingError": Code.CONNECTION,
    "psycopg.ConnectionTimeout": Code.TIMEOUT,
    "psycopg.QueryCanceled": Code.TIMEOUT,
    "psycopg_pool.PoolTimeout": Code.TIMEOUT,
    "asyncpg.QueryCanceledError": Code.TIMEOUT,
    "asyncpg.PostgresConnectionError": Code.CONNECTION,
    "asyncpg.CannotConnectNowError": Code.CONNECTION,
    "asyncpg.AdminShutdownError": Code.CONNECTION,
    "asyncpg.CrashShutdownError": Code.CONNECTION,
    "sqlalchemy.TimeoutError": Code.TIMEOUT,
    "grpc.FutureTimeoutError": Code.TIMEOUT,
    "redis.TimeoutError": Code.TIMEOUT,
    "redis.ConnectionError": Code.CONNECTION,
}
"""Codes by library and class. Subclasses are recognized too; the nearest class decides."""

_UNREACHABLE = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ENETRESET, errno.EADDRNOTAVAIL}
)
_WRAPPING = {"urllib.URLError": "reason", "urllib3.MaxRetryError": "reason", "sqlalchemy.DBAPIError": "orig"}
"""Exceptions that only carry another, and the attribute that holds it."""
_GRPC_STATUSES = {"DEADLINE_EXCEEDED": Code.TIMEOUT, "UNAVAILABLE": Code.CONNECTION}
_DATABASE_CONNECTION_STATES = ("08", "57P")
"""SQLSTATE classes of PostgreSQL: connection exceptions, and a server that starts or shuts down."""
_CAUSES_MAX = 10


def judged(error: BaseException) -> tuple[str, str] | None:
    """The code and the sentence for an exception that another system's silence caused; None for any other exception."""
    code = _code_of(error)
    return None if code is None else (code, _SENTENCES[code].format(kind=type(error).__name__))


def _code_of(error: BaseException) -> str | None:
    if isinstance(error, BaseExceptionGroup):  # asyncio.TaskGroup wraps every error
        codes = {_code_of(one) for one in error.exceptions}
        return codes.pop() if len(codes) == 1 else None
    code = _by_class(error)
    if code != Code.CONNECTION:
        return code
    # Libraries report an unknown name, a bad certificate and some timeouts as failed connections, with the reason as
    # the cause.
    return next((one for one in map(_by_class, _causes(error)) if one not in (None, Code.CONNECTION)), code)


def _by_class(error: BaseException) -> str | None:
    for kind in type(error).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if name in _WRAPPING:
            return _by_held(error, getattr(error, _WRAPPING[name], None))
        if name in _CODES:
            return _CODES[name]
        if name == "grpc.RpcError":
            return _by_grpc_status(error)
        if name in ("psycopg.OperationalError", "psycopg2.OperationalError"):
            return _by_state(error)
    return Code.CONNECTION if isinstance(error, OSError) and error.errno in _UNREACHABLE else None


def _by_held(error: BaseException, held: object) -> str | None:
    """The code of an exception that `error` only carries. SQLAlchemy also knows whether the connection was lost."""
    if getattr(error, "connection_invalidated", False):
        return Code.CONNECTION
    if not isinstance(held, BaseException):
        return None
    cause = held.__cause__
    return _code_of(held) or (None if cause is None else _code_of(cause))


def _by_state(error: BaseException) -> str | None:
    """PostgreSQL drivers report a lost connection without an SQLSTATE."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return Code.CONNECTION if state is None or str(state).startswith(_DATABASE_CONNECTION_STATES) else None


def _by_grpc_status(error: Any) -> str | None:
    """gRPC has one class for all failed calls, with the status as `code()`."""
    code = getattr(error, "code", None)
    return _GRPC_STATUSES.get(getattr(code(), "name", "")) if callable(code) else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    for _ in range(_CAUSES_MAX):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        yield cause
        error = cause
