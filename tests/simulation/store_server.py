"""A database server as workers see it: remote, sometimes slow, sometimes unreachable.

Behind it is the reference model. A call travels to the server, is executed even if its caller has died, and its answer
travels back. Both directions can fail. So when a worker dies during a call, nobody knows whether the call was executed.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

from doorstep.clock import Instant
from doorstep.errors import StoreUnavailable
from doorstep.model.event import any_left
from doorstep.stores.store import Store, Topic
from tests.reference import ReferenceStore
from tests.simulation.faults import Fault, Faults, NoFaults
from tests.simulation.journal import Journal
from tests.simulation.trace import Trace
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.support.shortcuts import call_name

_READS = frozenset({"due_lanes", "expired", "routing", "find", "get", "archive", "clean", "aggregate"})
"""Methods that are not traced and answer without a second delay: they change nothing, or little within an hour."""


class StoreServer:
    def __init__(self, store: ReferenceStore, loop: VirtualLoop, random: Random, trace: Trace) -> None:
        self.store = store
        self.faults: Faults = NoFaults()
        self.journal = Journal(store)
        self.failures: list[tuple[Instant, str, str]] = []
        """Time, process and method of each failed call."""
        self._loop = loop
        self._random = random
        self._trace = trace
        self._world = copy_context()
        self._listeners: list[tuple[Process, Callable[[], None]]] = []

    def connect(self, process: Process) -> Store:
        """The store as one process sees it."""
        return cast(Store, Connection(self, process))

    def listen(self, process: Process, wake: Callable[[], None]) -> None:
        self._listeners.append((process, wake))

    async def call(self, process: Process, verb: str, *args: Any, **named: Any) -> Any:
        fault = self.faults.strikes(call_name(verb, *args))
        if fault is not None:
            self.failures.append((self._loop.now, process.name, verb))
        call = _Call(process, verb, args, named, fault, self._loop.create_future())
        self._loop.call_later(self._latency_seconds(), self._execute, call, context=self._world)
        return await call.answer

    def _execute(self, call: _Call) -> None:
        if call.fault is Fault.BEFORE:
            self._trace.note(call.process.name, call.verb, "fails: not reached")
            self._answer(call, StoreUnavailable("the store cannot be reached"))
            return
        self.journal.prepare(call.verb)
        try:
            result = finish(getattr(self.store, call.verb)(*call.args, **call.named))
        except Exception as error:  # noqa: BLE001 - an error is the method's answer
            self._trace.note(call.process.name, call.verb, f"refused: {error}")
            self._answer(call, error)
            return
        self._keep(call, result)

    def _keep(self, call: _Call, result: Any) -> None:
        lost = call.fault is Fault.AFTER
        known = len(self.journal.steps)
        self.journal.record(self._loop.now, call.process.name, not lost, call.verb, call.args, result)
        if call.verb not in _READS:
            self._trace.note(call.process.name, call.verb, self.journal.steps[known:], "answer lost" if lost else "")
        if call.verb == "act" or (call.verb == "accept" and any_left(call.args[0], result)):
            self._announce()
        self._answer(call, StoreUnavailable("the answer of the store was lost") if lost else result)

    def _answer(self, call: _Call, result: Any) -> None:
        if call.verb in _READS:
            _give(call.answer, result)
        else:
            self._loop.call_later(self._latency_seconds(), _give, call.answer, result, context=self._world)

    def _announce(self) -> None:
        """Send wakeups to the listeners. Wakeups are only hints, so one in four is lost."""
        for process, wake in self._listeners:
            if self._random.random() < 0.75:
                self._loop.call_soon(wake, context=process.context)

    def _latency_seconds(self) -> float:
        """Usually one to three milliseconds, sometimes up to a quarter of a second, so that other calls overtake."""
        chance = self._random.random()
        return 0.25 * self._random.random() if chance > 0.95 else 0.001 + 0.002 * chance


class _Call(NamedTuple):
    process: Process
    verb: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    fault: Fault | None
    answer: Future[Any]


class Connection:
    """Forwards every store method to the server, and receives wakeups from it."""

    def __init__(self, server: StoreServer, process: Process) -> None:
        self._server = server
        self._process = process
        self.features = server.store.features
        self.aggregate_max = server.store.aggregate_max

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        if topic is Topic.DELIVERIES:
            self._server.listen(self._process, wake)

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self._server.call, self._process, verb)


def finish(verb: Coroutine[Any, Any, Any]) -> Any:
    """Run a method of the reference model, which never awaits, and return its result."""
    try:
        verb.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a verb of the reference model waited")


def _give(answer: Future[Any], result: Any) -> None:
    if answer.done():
        return  # the caller has been cancelled
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
