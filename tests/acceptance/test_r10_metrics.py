"""R10.2: after any history, with workers killed in the midst of it, each process tells what a recount of the rows does."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND
from doorstep.model.rollup import TTD_SECONDS, Figures
from doorstep.sealing import new_secret_key
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from tests.integration.program import Program, running, serving, wait_for
from tests.integration.receiver import Receiver, receiving
from tests.recounting import recount

T = TypeVar("T")
SEEDS = range(10) if os.environ.get("TORTURE") else range(1)
ROUNDS = 8
_PATIENCE_SECONDS = 60.0


class History:
    """A random story, told to any of the servers, while workers come and go by kill -9."""

    def __init__(
        self, seed: int, servers: list[Program], start_worker: Callable[[], Program], receiver: Receiver
    ) -> None:
        self._random = random.Random(seed)
        self._servers = servers
        self._start_worker = start_worker
        self._receiver = receiver
        self._workers = [start_worker(), start_worker()]
        self.event_ids: list[UUID] = []
        self._routed: list[UUID] = []
        self.killed = 0

    def enrol(self) -> None:
        for name in ("good", "flaky", "bad"):
            self._ask("POST", "/v1/endpoints", {
                "name": name, "url": self._receiver.url, "event_types": [name, "all"],
                "policy": {"delays": [0.1, 0.2], "jitter": 0}, "circuit": {"failures_max": 1_000_000},
            })  # fmt: skip

    def go_on(self) -> None:
        """A handful of events, something that an operator does, and perhaps the end of a worker."""
        self._receiver.status = self._random.choice([200, 200, 503, 404])
        kinds = self._random.choices(["good", "flaky", "bad", "all", "inbox"], k=self._random.randint(1, 30))
        sent = self._ask("POST", "/v1/events/batch", {"events": [{"event_type": one, "payload": 1} for one in kinds]})
        made = [UUID(one["event_id"]) for one in sent["events"]]
        self.event_ids += made
        self._routed += [event_id for event_id, kind in zip(made, kinds, strict=True) if kind != "inbox"]
        self._random.choice([self._retry, self._resolve, self._delete_letter, self._acknowledge, self._delete_event])()
        if self._random.random() < 0.4:
            self._kill()

    def end(self) -> None:
        """Everything that is left comes to its end; who still works then ends in order."""
        self._receiver.status = 200
        wait_for(self._nothing_waits, lambda: f"{self._ask('GET', '/v1/stats')}", _PATIENCE_SECONDS)
        for worker in self._workers:
            worker.stop()

    def _nothing_waits(self) -> bool:
        return all(one["queue_depth"] == 0 for one in self._ask("GET", "/v1/stats/endpoints")["endpoints"])

    def _kill(self) -> None:
        victim = self._workers.pop(0)
        victim.signal(signal.SIGKILL)
        self.killed += 1
        self._workers.append(self._start_worker())

    def _retry(self) -> None:
        for letter in self._letters():
            self._ask("POST", f"/v1/dead-letters/{letter}/retry")

    def _resolve(self) -> None:
        for letter in self._letters():
            self._ask("POST", f"/v1/dead-letters/{letter}/resolve")

    def _delete_letter(self) -> None:
        for letter in self._letters():
            self._ask("DELETE", f"/v1/dead-letters/{letter}")

    def _acknowledge(self) -> None:
        for event in self._ask("GET", "/v1/inbox?limit=3")["events"]:
            self._ask("POST", f"/v1/events/{event['event_id']}/ack")

    def _delete_event(self) -> None:
        """Never one of the inbox: of that no row would be left to recount."""
        if self._routed:
            self._ask("DELETE", f"/v1/events/{self._random.choice(self._routed)}")

    def _letters(self) -> list[str]:
        return [one["delivery_id"] for one in self._ask("GET", "/v1/dead-letters?limit=3")["dead_letters"]]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """From any server. What somebody else was faster with (404, 409) is part of the story."""
        answer = self._random.choice(self._servers).request(method, path, body)
        assert answer.status < 300 or answer.status in (404, 409), answer.body
        return json.loads(answer.body) if answer.body else None


@pytest.mark.parametrize("seed", SEEDS)
def test_each_process_tells_what_a_recount_of_the_rows_does_though_workers_were_killed(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    with receiving() as receiver, installed(database_url, tmp_path) as (servers, start_worker):
        history = History(seed, servers, start_worker, receiver)
        history.enrol()
        for _ in range(ROUNDS):
            history.go_on()
        history.end()
        figures = reading(database_url, lambda store: recount(store, DEFAULT_ORG, history.event_ids))
        expected = wanted(figures[None])
        for server in servers:
            wait_for(lambda told=server: scraped(told, expected) == expected, lambda: difference(servers, expected))
        assert history.killed and expected["doorstep_attempts_total[('outcome', 'dead')]"]
        fewer = reading(database_url, lambda store: recount(store, DEFAULT_ORG, history.event_ids[1:]))
        assert wanted(fewer[None]) != expected, "the recount notices a single event"
        agrees_with_stats(servers[0], figures[None])


def agrees_with_stats(server: Program, whole: Figures) -> None:
    """What /v1/stats tells of any range is the same: all of it has just happened."""
    for name in ("1h", "6h", "24h", "7d", "30d"):
        report = server.get(f"/v1/stats?range={name}").json["report"]
        summed = {kind: sum(values) for kind, values in report["series"]["events"].items()}
        assert summed == report["sum"]["events"] == {
            "created": whole.created, "delivered": whole.delivered, "failed": whole.failed
        }  # fmt: skip
        assert [one["deliveries"] for one in report["sum"]["retry_attempts"]] == list(whole.retries)
        assert [one["deliveries"] for one in report["sum"]["time_to_delivery_buckets"]] == list(whole.ttd)
        last = {status: values[-1] for status, values in report["series"]["statuses"].items()}
        assert last == {status: getattr(whole, f"now_{status}") for status in last}
        assert report["series"]["queue_depth"][-1] == whole.now_open
        assert report["series"]["dead_letters"][-1] == whole.now_dead


# -- the two sides ---------------------------------------------------------------------------------------------


def wanted(figures: Figures) -> dict[str, float]:
    """The figures by the names of their metrics."""
    told: dict[str, float] = {
        "doorstep_events_created_total": figures.created,
        "doorstep_events_delivered_total": figures.delivered,
        "doorstep_events_failed_total": figures.failed,
        "doorstep_events_received": figures.now_received,
        "doorstep_events_queued": figures.now_queued,
        "doorstep_queue_depth": figures.now_open,
        "doorstep_dead_letters": figures.now_dead,
        "doorstep_deliveries_dead_total": figures.dead,
        "doorstep_late_settles_total": figures.late,
        "doorstep_blocked_addresses_total": figures.blocked,
        "doorstep_attempts_total[('outcome', 'succeeded')]": figures.succeeded,
        "doorstep_attempts_total[('outcome', 'retry')]": figures.retried,
        "doorstep_attempts_total[('outcome', 'dead')]": figures.died,
        "doorstep_time_to_delivery_seconds_sum": figures.ttd_us / SECOND,
    }
    for status in ("received", "queued", "delivered", "failed"):
        told[f"doorstep_events[('status', '{status}')]"] = getattr(figures, f"now_{status}")
    told |= _buckets("doorstep_time_to_delivery_seconds", TTD_SECONDS, figures.ttd)
    return told | _buckets("doorstep_retry_attempts", range(7), figures.retries)


def _buckets(name: str, bounds: Any, counts: tuple[int, ...]) -> dict[str, float]:
    words = [*(str(float(bound)) for bound in bounds), "+Inf"]
    return {f"{name}_bucket[('le', '{le}')]": upto for le, upto in zip(words, accumulate(counts), strict=True)}


def scraped(server: Program, names: dict[str, float]) -> dict[str, float]:
    text = server.get("/metrics", key=None).body.decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    told = {f"{one.name}{sorted(one.labels.items()) or ''}": one.value for one in samples}
    return {name: value for name, value in told.items() if name in names}


def difference(servers: list[Program], expected: dict[str, float]) -> str:
    told = [scraped(server, expected) for server in servers]
    return str(
        {
            name: (value, *(one.get(name) for one in told))
            for name, value in expected.items()
            if any(one.get(name) != value for one in told)
        }
    )


# -- the installation ------------------------------------------------------------------------------------------


@contextmanager
def installed(database_url: str, folder: Path) -> Iterator[tuple[list[Program], Callable[[], Program]]]:
    """Two servers and any number of workers on one database. Short leases: what a killed worker held comes back soon."""
    environment = {
        "DOORSTEP_DATABASE_URL": database_url,
        "DOORSTEP_SECRET_KEY": new_secret_key(),
        "DOORSTEP_LEASE_SECONDS": "3",
        "DOORSTEP_TIMEOUT_SECONDS": "1",
        "DOORSTEP_LOG_LEVEL": "error",
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
    }
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(folder, environment=environment)) for _ in range(2)]
        yield servers, lambda: stack.enter_context(running("worker", folder=folder, environment=environment))


def reading(database_url: str, read: Callable[[Store], Awaitable[T]]) -> T:
    async def opened() -> T:
        store = store_from_url(database_url)
        await store.open()
        try:
            return await read(store)
        finally:
            await store.close()

    return asyncio.run(opened())
