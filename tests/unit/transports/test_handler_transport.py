"""Python handlers have the same attempts, deadlines and replies as HTTP endpoints."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from doorstep.clock import AnchoredClock, to_datetime
from doorstep.errors import Permanent, Transient
from doorstep.model.attempt import Category, Code, Failure, Reply
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.handler_replies import Handler, Received
from tests.support.builders import NOW
from tests.support.patience import PATIENCE_SECONDS
from tests.support.sending import Sending, a_transmission

PAYLOAD = b'{"card": "4111 1111 canary"}'
SHORT = 0.05


@asynccontextmanager
async def handling(threads_max: int = 8, **handlers: Handler) -> AsyncIterator[Sending]:
    transport = HandlerTransport(AnchoredClock(), handlers, threads_max)
    try:
        yield Sending(transport)
    finally:
        await transport.close()


async def reply_of(function: Handler, timeout_seconds: float = 5.0, payload: bytes = PAYLOAD) -> Reply:
    async with handling(it=function) as sending:
        return await sending.one(a_transmission("it", payload, timeout_seconds=timeout_seconds))


def as_plain(function: Callable[[Received], object]) -> Handler:
    return function


def as_async(function: Callable[[Received], object]) -> Handler:
    async def asynchronous(received: Received) -> object:
        return function(received)

    return asynchronous


def as_partial(function: Callable[[Received], object]) -> Handler:
    async def asynchronous(_: str, received: Received) -> object:
        return function(received)

    return functools.partial(asynchronous, "x")


def as_object(function: Callable[[Received], object]) -> Handler:
    class Callee:
        async def __call__(self, received: Received) -> object:
            return function(received)

    return Callee()


def as_plain_that_returns_an_awaitable(function: Callable[[Received], object]) -> Handler:
    return lambda received: as_async(function)(received)


KINDS = [as_plain, as_async, as_partial, as_object, as_plain_that_returns_an_awaitable]
every_kind = pytest.mark.parametrize("kind", KINDS)


def failure_in(reply: Reply) -> Failure:
    assert reply.failure is not None
    return reply.failure


@every_kind
async def test_a_handler_gets_the_delivery_and_its_return_is_success(kind: Callable[..., Handler]) -> None:
    seen: list[Received] = []
    reply = await reply_of(kind(seen.append))
    (received,) = seen
    assert (reply.failure, reply.status, reply.body) == (None, None, b"")
    assert reply.started_at <= reply.finished_at
    assert (received.payload, received.json(), received.event_type) == (
        PAYLOAD,
        {"card": "4111 1111 canary"},
        "user.created",
    )
    assert (received.attempt, received.retry_attempts, received.correlation_id) == (2, 1, "request-1")
    assert received.accepted_at == to_datetime(NOW) and received.event_id != received.delivery_id


@pytest.mark.parametrize(
    ("returned", "body"),
    [
        (None, b""),
        (b"raw", b"raw"),
        ("text é", "text é".encode()),
        ({"id": 7}, b'{"id":7}'),
        (object(), b""),
        (b"x" * 20_000, b"x" * 16_384),
        ("lone \ud800", b"lone ?"),
    ],
)
async def test_what_a_handler_returns_is_kept_for_the_log_up_to_the_cap(returned: object, body: bytes) -> None:
    reply = await reply_of(lambda _: returned)
    assert (reply.failure, reply.body) == (None, body)


@every_kind
async def test_transient_and_permanent_say_how_they_are_to_be_treated(kind: Callable[..., Handler]) -> None:
    def slow_down(_: Received) -> None:
        raise Transient("RATE_LIMIT", "come back later", retry_after=30)

    def hopeless(_: Received) -> None:
        raise Permanent("INVALID_FORMAT", "no such product")

    limited, refused = failure_in(await reply_of(kind(slow_down))), failure_in(await reply_of(kind(hopeless)))
    assert (limited.code, limited.category, limited.retry_after) == ("RATE_LIMIT", Category.TRANSIENT, 30)
    assert (refused.code, refused.category, refused.message) == (
        "INVALID_FORMAT",
        Category.PERMANENT,
        "no such product",
    )


@every_kind
@pytest.mark.parametrize(
    "error", [ValueError("nonsense"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()]
)
async def test_any_other_exception_costs_the_attempt_and_nothing_else(
    kind: Callable[..., Handler], error: BaseException
) -> None:
    def fail(_: Received) -> None:
        raise error

    async with handling(bad=kind(fail), good=lambda _: None) as sending:
        bad, good = await sending.all([a_transmission("bad"), a_transmission("good")])
        failed = failure_in(bad)
        assert (failed.code, failed.category) == (Code.HANDLER_ERROR, Category.TRANSIENT)
        assert "raise error" in failed.detail and good.failure is None
        assert (await sending.one(a_transmission("good"))).failure is None


async def test_neither_the_message_nor_the_traceback_holds_the_payload_even_if_the_exception_quotes_it() -> None:
    def quote(received: Received) -> None:
        raise ValueError(f"cannot use {received.payload!r} nor {received.payload.decode()}")

    failed = failure_in(await reply_of(quote))
    assert failed.message == "The handler raised ValueError."
    assert "canary" not in failed.message + failed.detail and "[payload]" in failed.detail


async def test_a_long_traceback_keeps_its_end_and_an_error_of_many_words_their_beginning() -> None:
    def fail(_: Received) -> None:
        words = "beginning " + "x" * 50_000
        try:
            raise ValueError(words) from ValueError(words)
        finally:
            raise ValueError(words)

    detail = failure_in(await reply_of(fail)).detail
    assert len(detail) == 8_000 and detail.rstrip().endswith("xxx")
    assert detail.splitlines()[-1].startswith("ValueError: beginning xxx")


async def test_an_unknown_name_is_told_as_such() -> None:
    async with handling() as sending:
        failed = failure_in(await sending.one(a_transmission("nobody")))
    assert failed.code == Code.NO_HANDLER and "'nobody'" in failed.message


async def test_an_async_handler_past_its_deadline_is_a_timeout_and_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def hang(_: Received) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert failure_in(await reply_of(hang, SHORT)).code == Code.TIMEOUT
    await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)


async def test_an_async_handler_that_will_not_be_cancelled_is_a_timeout_all_the_same() -> None:
    free = asyncio.Event()

    async def stubborn(_: Received) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with handling(it=stubborn) as sending:
        assert failure_in(await sending.one(a_transmission("it", timeout_seconds=SHORT))).code == Code.TIMEOUT
        free.set()


async def test_plain_handlers_that_hang_block_neither_others_nor_the_event_loop() -> None:
    free = threading.Event()

    def hang(_: Received) -> None:
        free.wait()

    async with handling(threads_max=4, hangs=hang, good=lambda _: "ok") as sending:
        # Long enough for four threads to start on a busy machine, since a handler that never started is not stuck.
        stuck = sending.start([a_transmission("hangs", timeout_seconds=0.5) for _ in range(4)])
        good = await sending.all([a_transmission("good", timeout_seconds=5) for _ in range(8)])
        assert [reply.body for reply in good] == [b"ok"] * 8  # served by the threads that replaced the stuck ones
        assert {failure_in(await future).code for future in stuck} == {Code.TIMEOUT}
        assert stuck_threads(sending) == 4
        free.set()
        while stuck_threads(sending):
            await asyncio.sleep(0)  # the stuck threads end as soon as their handlers return
        assert len(sending.batches) <= 12


async def test_stuck_threads_are_bounded_and_the_reason_is_told() -> None:
    free = threading.Event()
    before = threading.active_count()
    async with handling(threads_max=2, hangs=lambda _: free.wait()) as sending:
        replies = await sending.all([a_transmission("hangs", timeout_seconds=SHORT) for _ in range(2)])
        more = await sending.all([a_transmission("hangs", timeout_seconds=SHORT) for _ in range(3)])
        assert threading.active_count() - before <= 4
        assert {failure_in(reply).code for reply in replies + more} == {Code.TIMEOUT}
        unbegun = [reply for reply in more if not reply.started]
        assert unbegun and all(reply.started for reply in replies)
        assert {failure_in(reply).message for reply in unbegun} == {"No thread became free for the handler in time."}
        assert any("2 threads are stuck" in failure_in(reply).detail for reply in unbegun)
        free.set()


async def test_what_a_handler_does_after_its_deadline_is_not_reported_again() -> None:
    free = threading.Event()
    async with handling(it=lambda _: free.wait()) as sending:
        await sending.one(a_transmission("it", timeout_seconds=SHORT))
        free.set()
        while stuck_threads(sending):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sending.batches == [1]


async def test_close_cancels_what_is_running_and_reports_nothing_more() -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def hang(_: Received) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with handling(hangs=hang) as sending:
        sending.start([a_transmission("hangs")])
        await begun.wait()
        await sending.transport.close()
        assert cancelled.is_set() and sending.batches == []


async def test_a_closed_transport_can_be_opened_again() -> None:
    transport = HandlerTransport(AnchoredClock(), {"it": lambda _: "ok"})
    for _ in range(2):
        sending = Sending(transport)
        assert (await sending.one(a_transmission("it"))).body == b"ok"
        await transport.close()


async def test_a_thousand_plain_calls_share_few_threads_and_all_end() -> None:
    names: set[str] = set()
    async with handling(threads_max=4, it=lambda _: names.add(str(threading.get_ident()))) as sending:
        replies = await sending.all([a_transmission("it") for _ in range(1_000)])
        assert all(reply.failure is None for reply in replies) and len(names) <= 4


def stuck_threads(sending: Sending) -> int:
    assert isinstance(sending.transport, HandlerTransport)
    return sending.transport.stuck_threads


class CarrierBusy(Transient):
    """A typical user exception: its own `__init__` does not call ours."""

    def __init__(self, carrier: str) -> None:
        self.carrier = carrier


class CarrierGone(Permanent):
    def __init__(self) -> None:
        self.code, self.retry_after = 30007, "soon"  # type: ignore[assignment]


class Unspeakable(Transient):
    @property
    def message(self) -> str:  # type: ignore[override]
        raise ValueError

    response = property(lambda self: 1 / 0)  # type: ignore[assignment]

    def __init__(self) -> None: ...


@every_kind
@pytest.mark.parametrize(
    ("error", "code", "category", "message"),
    [
        (CarrierBusy("Acme"), Code.HANDLER_ERROR, Category.TRANSIENT, "The handler raised CarrierBusy."),
        (CarrierGone(), "30007", Category.PERMANENT, ""),
        (
            Unspeakable(),
            Code.HANDLER_ERROR,
            Category.TRANSIENT,
            "The handler raised Unspeakable, which cannot be described.",
        ),
    ],
    ids=["busy", "gone", "unspeakable"],
)
async def test_however_people_write_their_failures_each_try_ends_in_one_reply(
    kind: Callable[..., Handler], error: Exception, code: str, category: Category, message: str
) -> None:
    def fail(_: Received) -> None:
        raise error

    failed = failure_in(await reply_of(kind(fail)))
    assert (failed.code, failed.category, failed.message, failed.retry_after) == (code, category, message, None)


async def test_what_a_handler_raised_and_what_a_plain_one_returned_is_worded_in_a_thread() -> None:
    """A long answer, or a long traceback, must not hold up the event loop."""
    threads: list[int] = []

    class Text(str):
        def encode(self, *_: object) -> bytes:
            threads.append(threading.get_ident())
            return b"ok"

    class Failing(Transient):
        def __str__(self) -> str:
            threads.append(threading.get_ident())
            return "no"

    def fail(_: Received) -> None:
        raise Failing("NO")

    assert (await reply_of(lambda _: Text())).body == b"ok"
    assert failure_in(await reply_of(fail)).code == "NO"
    assert failure_in(await reply_of(as_async(fail))).code == "NO"
    assert len(threads) >= 3 and threading.get_ident() not in threads


async def test_a_handler_that_hangs_uses_up_its_own_threads_and_none_of_its_neighbours() -> None:
    free = threading.Event()
    warnings: list[str] = []
    handlers: dict[str, Handler] = {"hangs": lambda _: free.wait() and "late", "good": lambda _: "ok"}
    transport = HandlerTransport(AnchoredClock(), handlers, threads_max=16, warn=warnings.append)
    sending = Sending(transport)
    assert (transport.slots("hangs"), transport.slots("good")) == (None, None)
    for _ in range(6):  # more than two, an eighth of the threads: the buffer may not be empty yet
        await sending.one(a_transmission("hangs", timeout_seconds=SHORT))
    assert stuck_threads(sending) == 2 and transport.slots("hangs") == 0
    assert transport.slots("good") is None
    good = await sending.all([a_transmission("good", timeout_seconds=2) for _ in range(64)])
    assert [reply.body for reply in good] == [b"ok"] * 64
    (warning,) = warnings
    assert warning.startswith("handler 'hangs' hangs in 2 threads and gets no more until one returns")
    waiting = sending.start([a_transmission("hangs", timeout_seconds=5)])
    free.set()
    assert (await waiting[0]).body == b"late"  # a waiting attempt starts when a thread returns
    while stuck_threads(sending):
        await asyncio.sleep(0)
    assert transport.slots("hangs") is None
    await transport.close()


async def test_a_handler_is_served_only_for_the_organizations_that_it_was_declared_for() -> None:
    ours, theirs = a_transmission("it"), a_transmission("it")
    orgs = {"it": {ours.claim.org_id}}
    transport = HandlerTransport(AnchoredClock(), {"it": lambda _: "ok"}, orgs=orgs)
    assert transport.serves("it", ours.claim.org_id) and not transport.serves("it", theirs.claim.org_id)
    assert not transport.serves("another", ours.claim.org_id)
    taken, refused = await Sending(transport).all([ours, theirs])
    assert (taken.body, failure_in(refused).code) == (b"ok", Code.NO_HANDLER)
    await transport.close()


@every_kind
@pytest.mark.parametrize(
    ("response", "body"),
    [(None, b""), (b"\x00raw", b"\x00raw"), ("their words", b"their words"), ({"code": 30007}, b'{"code":30007}')],
)
async def test_what_the_other_side_said_is_kept_as_the_response_of_the_failed_attempt(
    kind: Callable[..., Handler], response: object, body: bytes
) -> None:
    def refuse(_: Received) -> None:
        raise Permanent("BATCH_REJECTED", "the carrier refused it", response=response)

    reply = await reply_of(kind(refuse))
    assert (failure_in(reply).code, reply.body) == ("BATCH_REJECTED", body)
