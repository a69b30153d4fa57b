"""The DeadLetterNotifier: each callback is called once per dead letter, and a bad callback disturbs no other."""

from __future__ import annotations

import threading

import pytest

from doorstep.clock import Clock, to_datetime
from doorstep.model.delivery import DeadLetter
from doorstep.services import dead_letter_notifier
from doorstep.services.dead_letter_notifier import DeadLetterCallback, DeadLetterNotifier
from doorstep.telemetry.facts import DeliveryTransition, Notice
from tests.unit.engine.scene import Bench


class Notified:
    """A bench with a notifier that receives its dead letters."""

    def __init__(self, *callbacks: DeadLetterCallback) -> None:
        self.bench = Bench()
        clock: Clock = self.bench.clock
        self.notifier = DeadLetterNotifier(
            callbacks, self.bench.store, self.bench.directory, clock, self.bench.telemetry
        )
        self.bench.telemetry.subscribe(self.notifier.on_facts)

    async def dead_letter(self, count: int = 1, status: int = 404) -> None:
        (endpoint,) = await self.bench.prepare(name="carrier")
        await self.bench.accept(endpoint, count)
        await self.bench.deliver(status)

    @property
    def warnings(self) -> list[str]:
        return [notice.message for notice in self.bench.heard(Notice)]


async def test_a_plain_and_an_async_function_are_each_told_once_of_each_dead_letter() -> None:
    plain: list[DeadLetter] = []
    asynchronous: list[DeadLetter] = []

    async def listen(letter: DeadLetter) -> None:
        asynchronous.append(letter)

    notified = Notified(plain.append, listen)
    await notified.dead_letter(3)
    for _ in range(2):
        assert await notified.notifier.run_once() is None
    assert plain == asynchronous and len({letter.delivery_id for letter in plain}) == 3
    letter = plain[0]
    assert (letter.event_type, letter.endpoint, letter.attempts) == ("user.created", "carrier", 1)
    assert (letter.code, letter.reason) == ("NOT_FOUND", "The receiver does not know this URL (404 Not Found).")
    assert letter.at == to_datetime(notified.bench.clock.now())


async def test_a_failure_that_is_tried_again_is_no_dead_letter() -> None:
    told: list[DeadLetter] = []
    notified = Notified(told.append)
    await notified.dead_letter(status=503)
    await notified.notifier.run_once()
    assert not told


@pytest.mark.parametrize("error", [ValueError("nonsense"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_function_raises_is_logged_and_the_others_are_told_all_the_same(error: BaseException) -> None:
    told: list[DeadLetter] = []

    def fail(_: DeadLetter) -> None:
        raise error

    async def fail_too(_: DeadLetter) -> None:
        raise error

    notified = Notified(fail, fail_too, told.append)
    await notified.dead_letter()
    await notified.notifier.run_once()
    assert len(told) == 1
    name = type(error).__name__
    assert [f" failed: {name}" in warning for warning in notified.warnings] == [True, True]


async def test_a_function_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the hanging function has the short limit, since a busy machine may start the next thread more slowly."""
    monkeypatch.setattr(dead_letter_notifier, "_CALLBACK_SECONDS_MAX", 0.01)
    free, told = threading.Event(), []

    async def restore_limit(_: DeadLetter) -> None:
        monkeypatch.undo()

    notified = Notified(lambda _: free.wait(), restore_limit, told.append)
    await notified.dead_letter()
    await notified.notifier.run_once()
    free.set()
    assert len(told) == 1 and len(notified.warnings) == 1
    assert "did not return within 0.01 s" in notified.warnings[0]


async def test_a_death_is_remembered_while_the_store_is_away_and_forgotten_when_it_is_no_more() -> None:
    told: list[DeadLetter] = []
    notified = Notified(told.append)
    await notified.dead_letter()
    notified.bench.failing.away.add("get Delivery")
    with pytest.raises(Exception, match="get Delivery is away"):
        await notified.notifier.run_once()
    notified.bench.failing.away.clear()
    await notified.notifier.run_once()
    assert len(told) == 1


async def test_an_end_is_neither_delayed_by_the_untold_nor_broken_by_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letter_notifier, "_FLUSH_SECONDS", 0.2)
    free = threading.Event()
    slow = Notified(lambda _: free.wait())
    await slow.dead_letter(3)
    await slow.notifier.flush()
    free.set()
    assert slow.warnings == ["dead letters that no callback received: 2 (TimeoutError at shutdown)"]
    monkeypatch.undo()
    away = Notified(lambda _: None)
    await away.dead_letter()
    away.bench.failing.away.add("get Delivery")
    await away.notifier.flush()
    assert away.warnings == ["dead letters that no callback received: 1 (StoreUnavailable at shutdown)"]


async def test_what_there_is_no_room_for_is_counted_and_nothing_that_waits_is_lost_while_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the first dead letter is read, more arrive than the queue has room for."""
    monkeypatch.setattr(dead_letter_notifier, "_QUEUE_MAX", 3)
    told: list[DeadLetter] = []
    notified = Notified(told.append)
    await notified.dead_letter(3)
    waiting = list(notified.notifier._queue)
    read = notified.notifier._dead_letter

    async def meanwhile(death: DeliveryTransition) -> DeadLetter | None:
        monkeypatch.setattr(notified.notifier, "_dead_letter", read)
        notified.notifier.on_facts([death] * 4)
        return await read(death)

    monkeypatch.setattr(notified.notifier, "_dead_letter", meanwhile)
    await notified.notifier.run_once()
    expected = [*waiting, waiting[0]]
    assert [letter.delivery_id for letter in told] == [death.delivery_id for death in expected]
    await notified.notifier.run_once()
    await notified.notifier.run_once()
    assert notified.warnings == ["dead letters that no callback received: 3 (3 others were waiting)"]
