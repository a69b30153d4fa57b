"""A random story of events and operator actions, spread over several processes while workers are killed."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Any
from uuid import UUID

from tests.support.program import Program, wait_for
from tests.support.receiver import Receiver

WORKERS = 3
ACTS_A_ROUND = 3
_NAMES = ("good", "flaky", "bad", "late", "all", "inbox")


class History:
    """Sends each step to a random server; workers are started and ended with kill -9."""

    def __init__(
        self, seed: int, servers: list[Program], start_worker: Callable[[], Program], receiver: Receiver
    ) -> None:
        self._random = random.Random(seed)
        self._servers = servers
        self._start_worker = start_worker
        self._receiver = receiver
        self._workers = [start_worker() for _ in range(WORKERS)]
        self.endpoints: dict[str, str] = {}
        """Endpoint ids by name."""
        self._sent: list[UUID] = []
        self._acts = self._every_act()
        self.event_ids: list[UUID] = []
        self.killed = 0
        self.done: set[str] = set()
        """The kinds of actions of which at least one succeeded."""

    def enrol(self) -> None:
        for name in ("good", "flaky", "bad", "late"):
            made = self._ask("POST", "/v1/endpoints", {
                "name": name, "url": self._receiver.url, "event_types": [name, "all"],
                "policy": {"delays": [0.1, 0.2], "jitter": 0}, "circuit": {"failures_max": 1_000_000},
            })  # fmt: skip
            self.endpoints[name] = made["endpoint_id"]
        self._lose_one()

    def _lose_one(self) -> None:
        """Make one delivery fail permanently: on a busy machine, the rounds may end before anything is tried."""
        self._receiver.status = 404
        self._send(["bad"])
        wait_for(lambda: self._ask("GET", "/v1/dead-letters")["dead_letters"], lambda: "no death")

    def go_on(self) -> None:
        """Send some events, perform some operator actions, and sometimes kill a worker (always in the first round)."""
        self._receiver.status = self._random.choice([200, 200, 503, 404])
        self._send(self._random.choices(_NAMES, k=self._random.randint(1, 30)))
        for act in islice(self._acts, ACTS_A_ROUND):
            act()
        if not self.killed or self._random.random() < 0.4:
            self._kill()

    def end(self) -> None:
        """Let everything that is left finish, then stop the remaining workers gracefully."""
        self._receiver.status = 200
        for endpoint_id in self.endpoints.values():
            self._ask("POST", f"/v1/endpoints/{endpoint_id}/resume")
        wait_for(self._nothing_waits, lambda: f"{self._ask('GET', '/v1/stats')}")
        for worker in self._workers:
            worker.stop()

    def _nothing_waits(self) -> bool:
        health, bulks = self._ask("GET", "/v1/stats/endpoints")["endpoints"], self._ask("GET", "/v1/bulk")["bulk"]
        return all(one["queue_depth"] == 0 for one in health) and all(one["state"] == "finished" for one in bulks)

    def _send(self, kinds: list[str]) -> None:
        later = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        events = [{"event_type": one, "payload": 1} | ({"deliver_at": later} if one == "late" else {}) for one in kinds]
        made = [UUID(one["event_id"]) for one in self._ask("POST", "/v1/events/batch", {"events": events})["events"]]
        self.event_ids += made
        # A deleted event has lost its delivery time, and a deleted inbox event would leave no row to recount.
        self._sent += [key for key, kind in zip(made, kinds, strict=True) if kind not in ("inbox", "late")]

    def _kill(self) -> None:
        victim = self._workers.pop(0)
        victim.signal(signal.SIGKILL)
        self.killed += 1
        self._workers.append(self._start_worker())

    # -- operator actions ----------------------------------------------------------------------------------

    def _every_act(self) -> Iterator[Callable[[], None]]:
        acts = [
            *(lambda act=act: self._with_letters("POST", f"/{act}") for act in ("retry", "resolve")),
            lambda: self._with_letters("DELETE", ""),
            lambda: self._with_letters("POST", "/retry", {"payload": {"edited": True}}),
            *(lambda act=act: self._with_queue(act) for act in ("retry", "skip")),
            *(lambda act=act: self._with_event(act) for act in ("retry", "cancel")),
            *(lambda act=act: self._with_letters_at_once(act) for act in ("retry", "resolve", "delete")),
            *(self._replay, self._delete_event, self._acknowledge, self._pause, self._skip_all),
        ]
        self._random.shuffle(acts)
        return cycle(acts)

    def _with_letters(self, method: str, act: str, body: Any = None) -> None:
        for one in self._ask("GET", "/v1/dead-letters?limit=3")["dead_letters"]:
            self._act(
                f"{method} letter{act}{' edited' if body else ''}",
                method,
                f"/v1/dead-letters/{one['delivery_id']}{act}",
                body,
            )

    def _with_queue(self, act: str) -> None:
        for one in self._ask("GET", "/v1/retry-queue?limit=3")["deliveries"]:
            self._act(f"{act} queued", "POST", f"/v1/retry-queue/{one['delivery_id']}/{act}")

    def _with_event(self, act: str) -> None:
        for event_id in self._random.sample(self._sent, k=min(3, len(self._sent))):
            self._act(f"{act} event", "POST", f"/v1/events/{event_id}/{act}")

    def _with_letters_at_once(self, act: str) -> None:
        self._act(f"{act} letters", "POST", f"/v1/dead-letters/bulk-{act}", {"filter": {"event_type": "flaky"}})

    def _skip_all(self) -> None:
        self._act("skip the queue", "POST", "/v1/retry-queue/bulk-skip", {"all": True})

    def _replay(self) -> None:
        if self._sent:
            body = {"endpoint_id": self.endpoints["good"]}
            made = self._act("replay", "POST", f"/v1/events/{self._random.choice(self._sent)}/replay", body)
            self.event_ids += [UUID(made["event_id"])] if made else []

    def _delete_event(self) -> None:
        if self._sent:
            self._act("delete event", "DELETE", f"/v1/events/{self._random.choice(self._sent)}")

    def _acknowledge(self) -> None:
        for event in self._ask("GET", "/v1/inbox?limit=3")["events"]:
            self._act("acknowledge", "POST", f"/v1/events/{event['event_id']}/ack")

    def _pause(self) -> None:
        """Pause one endpoint, and resume those that were paused before."""
        for name, endpoint_id in self.endpoints.items():
            act = "pause" if name == self._random.choice(list(self.endpoints)) else "resume"
            self._act(act, "POST", f"/v1/endpoints/{endpoint_id}/{act}")

    def _act(self, name: str, method: str, path: str, body: Any = None) -> Any:
        answer = self._send_to_anyone(method, path, body)
        if answer.status < 300:
            self.done.add(name)
        return json.loads(answer.body) if answer.status < 300 and answer.body else None

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._send_to_anyone(method, path, body)
        return json.loads(answer.body) if answer.body else None

    def _send_to_anyone(self, method: str, path: str, body: Any) -> Any:
        """Send to a random server. The answers 404 and 409 are accepted, because another action may have come first."""
        answer = self._random.choice(self._servers).request(method, path, body)
        assert answer.status < 300 or answer.status in (404, 409), answer.body
        return answer
