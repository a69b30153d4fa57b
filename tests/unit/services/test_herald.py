"""The DeadLetterNotifier: whoever asked is told of each dead letter once, and cannot harm anybody by what he does then."""

from __future__ import annotations

import threading

import pytest

from doorstep.clock import Clock
from doorstep.model.delivery import DeadLetter
from doorstep.services import dead_letter_notifier as heralding
from doorstep.services.dead_letter_notifier import DeadLetterCallback, DeadLetterNotifier
from doorstep.telemetry.facts import DeliveryTransition, Notice
from tests.unit.path.scene import Bench


class Wake:
    """A bench whose deaths are heard of."""

    def __init__(self, *callbacks: DeadLetterCallback) -> None:
        self.bench = Bench()
        clock: Clock = self.bench.clock
        self.herald = DeadLetterNotifier(callbacks, self.bench.store, self.bench.directory, clock, self.bench.telemetry)
        self.bench.telemetry.subscribe(self.herald.hear)

    async def bury(self, count: int = 1, status: int = 404) -> None:
        (endpoint,) = await self.bench.prepare(name="carrier")
        await self.bench.accept(endpoint, count)
        await self.bench.deliver(status)

    @property
    def complaints(self) -> list[str]:
        return [notice.message for notice in self.bench.heard(Notice)]


async def test_a_plain_and_an_async_function_are_each_told_once_of_each_dead_letter() -> None:
    plain: list[DeadLetter] = []
    asynchronous: list[DeadLetter] = []

    async def listen(letter: DeadLetter) -> None:
        asynchronous.append(letter)

    wake = Wake(plain.append, listen)
    await wake.bury(3)
    for _ in range(2):
        assert await wake.herald.run_once() is None
    assert plain == asynchronous and len({letter.delivery_id for letter in plain}) == 3
    letter = plain[0]
    assert (letter.event_type, letter.endpoint, letter.attempts) == ("user.created", "carrier", 1)
    assert (letter.code, letter.reason) == ("NOT_FOUND", "The receiver knows no such address (404 Not Found).")
    assert letter.at == wake.bench.clock.now()


async def test_a_failure_that_is_tried_again_is_no_dead_letter() -> None:
    told: list[DeadLetter] = []
    wake = Wake(told.append)
    await wake.bury(status=503)
    await wake.herald.run_once()
    assert not told


@pytest.mark.parametrize("error", [ValueError("nonsense"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_function_raises_is_logged_and_the_others_are_told_all_the_same(error: BaseException) -> None:
    told: list[DeadLetter] = []

    def fail(_: DeadLetter) -> None:
        raise error

    async def fail_too(_: DeadLetter) -> None:
        raise error

    wake = Wake(fail, fail_too, told.append)
    await wake.bury()
    await wake.herald.run_once()
    assert len(told) == 1
    name = type(error).__name__
    assert [f"failed: it raised {name}" in complaint for complaint in wake.complaints] == [True, True]


async def test_a_function_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heralding, "_PATIENCE_SECONDS", 0.01)
    free, told = threading.Event(), []
    wake = Wake(lambda _: free.wait(), told.append)
    await wake.bury()
    await wake.herald.run_once()
    free.set()
    assert len(told) == 1 and "did not return within 0.01 s" in wake.complaints[0]


async def test_a_death_is_remembered_while_the_store_is_away_and_forgotten_when_it_is_no_more() -> None:
    told: list[DeadLetter] = []
    wake = Wake(told.append)
    await wake.bury()
    wake.bench.failing.away.add("delivery")
    with pytest.raises(Exception, match="delivery is away"):
        await wake.herald.run_once()
    wake.bench.failing.away.clear()
    await wake.herald.run_once()
    assert len(told) == 1


async def test_an_end_is_neither_delayed_by_the_untold_nor_broken_by_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heralding, "_FLUSH_SECONDS", 0.02)
    free = threading.Event()
    slow = Wake(lambda _: free.wait())
    await slow.bury(3)
    await slow.herald.flush()
    free.set()
    assert slow.complaints == ["2 dead letters were told to nobody: TimeoutError at the end"]
    away = Wake(lambda _: None)
    await away.bury()
    away.bench.failing.away.add("delivery")
    await away.herald.flush()
    assert away.complaints == ["1 dead letters were told to nobody: StoreUnavailable at the end"]


async def test_what_there_is_no_room_for_is_counted_and_nothing_that_waits_is_lost_while_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the first letter is read more is heard of than there is room for."""
    monkeypatch.setattr(heralding, "_UNTOLD_MAX", 3)
    told: list[DeadLetter] = []
    wake = Wake(told.append)
    await wake.bury(3)
    waiting = list(wake.herald._deaths)
    read = wake.herald._letter

    async def meanwhile(death: DeliveryTransition) -> DeadLetter | None:
        monkeypatch.setattr(wake.herald, "_letter", read)
        wake.herald.hear([death] * 4)
        return await read(death)

    monkeypatch.setattr(wake.herald, "_letter", meanwhile)
    await wake.herald.run_once()
    expected = [*waiting, waiting[0]]
    assert [letter.delivery_id for letter in told] == [death.delivery_id for death in expected]
    await wake.herald.run_once()
    await wake.herald.run_once()
    assert wake.complaints == ["3 dead letters were told to nobody: 3 others were waiting to be told"]
