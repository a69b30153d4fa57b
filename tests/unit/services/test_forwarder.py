"""The Forwarder looks again immediately after it forwarded something, soon after a hint, and otherwise seldom."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.engine.accept import Accepter
from doorstep.services.coordination import IDLE_POLL_SECONDS
from doorstep.services.forwarder import NOTICED_POLL_SECONDS, POLL_SECONDS, POLLS_BEFORE_SLEEP, Forwarder
from tests.unit.engine.scene import Bench


class Scripted(Forwarder):
    """A forwarder with predefined batch sizes; later batches are empty."""

    def __init__(self, *batches: int, noticed: bool, announced: bool = True) -> None:
        bench = Bench()
        bench.failing.features = replace(bench.failing.features, notices_posts=noticed, announces_work=not noticed)
        self.asked: list[bool] = []

        async def announce_posts(wanted: bool) -> bool:
            self.asked.append(wanted)
            return announced

        bench.failing.announce_posts = announce_posts  # type: ignore[attr-defined]
        accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=bench._wake)
        super().__init__(bench.store, accepter, bench.clock, bench.telemetry, "f1")
        self._batches = list(batches)

    async def forward(self) -> int:
        return self._batches.pop(0) if self._batches else 0


async def rest(forwarder: Forwarder) -> list[float | None]:
    """The pauses between rounds, until two in a row are equal."""
    pauses = [await forwarder.run_once()]
    while len(pauses) < 2 or pauses[-1] != pauses[-2]:
        pauses.append(await forwarder.run_once())
    return pauses


async def test_it_looks_again_at_once_until_there_is_nothing() -> None:
    forwarder = Scripted(500, 500, 3, noticed=False)
    assert [await forwarder.run_once() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert await forwarder.run_once() != 0.0


async def test_pauses_grow_to_the_poll_and_a_hint_makes_them_short_again() -> None:
    forwarder = Scripted(noticed=False)
    first = await rest(forwarder)
    assert first == sorted(first)  # type: ignore[type-var]
    assert first[-1] == POLL_SECONDS
    forwarder.hint()
    assert forwarder.wake.is_set()
    assert await rest(forwarder) == first, "the commit may come a little after the hint"


async def test_after_a_second_without_messages_it_asks_to_be_woken_looks_once_more_and_sleeps() -> None:
    forwarder = Scripted(noticed=False)
    pauses = [await forwarder.run_once() for _ in range(POLLS_BEFORE_SLEEP + 1)]
    assert pauses[-3:] == [POLL_SECONDS, 0.0, IDLE_POLL_SECONDS]
    assert 1 <= sum(pauses[:-1]) < 2  # type: ignore[arg-type]
    assert forwarder.asked == [True, True]
    forwarder.hint()
    assert await rest(forwarder) == pauses[:9]
    assert forwarder.asked == [True, True, False], "senders do not notify while messages follow each other"


async def test_while_a_sender_may_still_commit_unannounced_it_goes_on_polling() -> None:
    forwarder = Scripted(noticed=False, announced=False)
    pauses = [await forwarder.run_once() for _ in range(3 * POLLS_BEFORE_SLEEP)]
    assert pauses[-POLLS_BEFORE_SLEEP:] == [POLL_SECONDS] * POLLS_BEFORE_SLEEP


async def test_a_message_that_is_found_ends_the_announcements() -> None:
    forwarder = Scripted(*[0] * (POLLS_BEFORE_SLEEP + 1), 5, noticed=False)
    for _ in range(POLLS_BEFORE_SLEEP + 2):
        await forwarder.run_once()
    assert forwarder.asked == [True, True, False]


async def test_where_commits_are_noticed_a_hint_is_one_look_and_a_poll_is_seldom() -> None:
    forwarder = Scripted(noticed=True)
    assert (await rest(forwarder))[-1] == NOTICED_POLL_SECONDS
    forwarder.hint()
    assert forwarder.wake.is_set()
    assert await forwarder.run_once() == NOTICED_POLL_SECONDS
