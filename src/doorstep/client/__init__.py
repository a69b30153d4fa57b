"""A client for a running Doorstep: `Client` for ordinary programs, `AsyncClient` for asyncio.

    from doorstep.client import Client

Importing this module does not load the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar, cast

import httpx2

from doorstep import __version__
from doorstep.client.administration import (
    AlertRules,
    Alerts,
    Audit,
    Channels,
    Keys,
    Orgs,
    SignInLinks,
    Silences,
    Workers,
)
from doorstep.client.call import Call, Page, Silence
from doorstep.client.endpoints import Endpoints, Slos
from doorstep.client.errors import (
    Answer,
    ApiError,
    ClientError,
    Conflict,
    DeliveryFailed,
    Forbidden,
    Invalid,
    NotFound,
    Overloaded,
    ServerFault,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WaitEnded,
)
from doorstep.client.events import Batches, Events, Inbox, NewEvent, Pipelines, Sending
from doorstep.client.queues import Attempts, BulkOperations, DeadLetters, Deliveries, RetryQueue, Selection
from doorstep.client.verbs import NEVER, USUAL, Invoke, Pause, R_co, Reply, Retrying, Step, Steps, perform
from doorstep.errors import InvalidInput
from doorstep.schemas.inbox import LeasedEvent
from doorstep.schemas.shape import Pagination

__all__ = [
    "NEVER",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Conflict",
    "DeliveryFailed",
    "Forbidden",
    "Invalid",
    "LeasedEvent",
    "NewEvent",
    "NotFound",
    "Overloaded",
    "Page",
    "Pagination",
    "Retrying",
    "Selection",
    "ServerFault",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "WaitEnded",
]

T = TypeVar("T")
TIMEOUT_SECONDS = 10.0


class _Groups(Sending[R_co]):
    """All methods of a client, in groups such as `client.endpoints`."""

    def __init__(self, runner: R_co) -> None:
        super().__init__(runner)
        self.events = Events(runner)
        self.inbox = Inbox(runner)
        self.endpoints = Endpoints(runner)
        self.retry_queue = RetryQueue(runner)
        self.dead_letters = DeadLetters(runner)
        self.deliveries = Deliveries(runner)
        self.attempts = Attempts(runner)
        self.bulk = BulkOperations(runner)
        self.batches = Batches(runner)
        self.pipelines = Pipelines(runner)
        self.keys = Keys(runner)
        self.orgs = Orgs(runner)
        self.audit = Audit(runner)
        self.sign_in_links = SignInLinks(runner)
        self.alerts = Alerts(runner)
        self.alert_rules = AlertRules(runner)
        self.silences = Silences(runner)
        self.channels = Channels(runner)
        self.slo = Slos(runner)
        self.workers = Workers(runner)


class Blocking:
    """Executes steps in the calling thread. It is thread-safe."""

    def __init__(self, http: httpx2.Client, retrying: Retrying) -> None:
        self.http = http
        self.retrying = retrying

    def run(self, steps: Steps[T], /) -> T:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as ended:
                return cast(T, ended.value)
            reply = self._take(step)

    def each(self, first: Call[Page[T]], /) -> Iterator[T]:
        call: Call[Page[T]] | None = first
        while call is not None:
            page = self.run(perform(call, self.retrying))
            yield from page
            call = _next(call, page)

    def _take(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return time.monotonic()
        if isinstance(step, Invoke):
            return step.run()
        try:
            return _answer(self.http.send(_build(self.http, step)))
        except httpx2.RequestError as error:
            return _silence(error)


class Asynchronous:
    """Executes steps in the running event loop."""

    def __init__(self, http: httpx2.AsyncClient, retrying: Retrying) -> None:
        self.http = http
        self.retrying = retrying

    async def run(self, steps: Steps[T], /) -> T:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as ended:
                return cast(T, ended.value)
            reply = await self._take(step)

    async def each(self, first: Call[Page[T]], /) -> AsyncIterator[T]:
        call: Call[Page[T]] | None = first
        while call is not None:
            page = await self.run(perform(call, self.retrying))
            for item in page:
                yield item
            call = _next(call, page)

    async def _take(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return time.monotonic()
        if isinstance(step, Invoke):
            return await step.run_async()
        try:
            return _answer(await self.http.send(_build(self.http, step)))
        except httpx2.RequestError as error:
            return _silence(error)


class Client(_Groups[Blocking]):
    """A client for a running Doorstep.

        with Client("http://127.0.0.1:8080", key) as client:
            receipt = client.send("order.paid", {"order": 42})
            client.wait_for_delivery(receipt.event_id)

    `timeout` is in seconds and applies to each phase of a request separately: connecting, sending, and each read.
    """

    def __init__(
        self, url: str, key: str = "", *, timeout: float = TIMEOUT_SECONDS, retrying: Retrying = USUAL
    ) -> None:
        http = httpx2.Client(base_url=_checked(url), headers=_headers(key), timeout=timeout)
        super().__init__(Blocking(http, retrying))

    def close(self) -> None:
        """Close the client's connections."""
        self._runner.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Groups[Asynchronous]):
    """`Client` for asyncio: every method is awaited, and `each` is used with `async for`."""

    def __init__(
        self, url: str, key: str = "", *, timeout: float = TIMEOUT_SECONDS, retrying: Retrying = USUAL
    ) -> None:
        http = httpx2.AsyncClient(base_url=_checked(url), headers=_headers(key), timeout=timeout)
        super().__init__(Asynchronous(http, retrying))

    @classmethod
    def in_process(cls, application: Any, headers: dict[str, str]) -> Self:
        """A client of an ASGI application in this process. `headers` are sent with every request."""
        # Not with `cls(…)`: a client for the network reads the certificates of this machine, which takes 17 ms.
        http = httpx2.AsyncClient(
            base_url="http://doorstep", headers=headers, transport=httpx2.ASGITransport(app=application)
        )
        client = cls.__new__(cls)
        _Groups.__init__(client, Asynchronous(http, NEVER))
        return client

    async def close(self) -> None:
        """Close the client's connections."""
        await self._runner.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _checked(url: str) -> str:
    """Reject an invalid URL here. Otherwise each request would be retried, although it can never succeed."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput("url", f"must be a URL, got {url!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput("url", f"must begin with http:// or https:// and name a host, got {url!r}")
    return url


def _headers(key: str) -> dict[str, str]:
    """Check the key, because a key read from a file often ends with a newline. The error message does not contain the
    key."""
    if not (key.isascii() and key.isprintable()) or key.strip() != key:
        raise InvalidInput("key", "must be printable ASCII without spaces or newlines around it")
    agent = {"user-agent": f"doorstep-python/{__version__}"}
    return agent | ({"x-api-key": key} if key else {})


def _build(http: httpx2.Client | httpx2.AsyncClient, call: Call[Any]) -> httpx2.Request:
    return http.build_request(
        call.method, call.path, params=call.query or None, headers=call.headers, content=call.content
    )


def _answer(response: httpx2.Response) -> Answer:
    return Answer(
        response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content
    )


def _silence(error: httpx2.RequestError) -> Silence:
    return Silence(str(error) or type(error).__name__)


def _next(call: Call[Page[T]], page: Page[T]) -> Call[Page[T]] | None:
    """The call that fetches the next page, or None if this is the last page."""
    cursor = page.pagination.cursor
    return call.after(cursor) if page.pagination.has_more and cursor is not None else None
