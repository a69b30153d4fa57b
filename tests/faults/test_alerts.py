"""Somebody is told of everything, once, while every process that could tell is killed over and over."""

from __future__ import annotations

import http.client
import random
import time
from contextlib import suppress
from typing import Any, NamedTuple

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.telling import Office, open_office

SHOPS = 20
EVENTS_PER_SHOP = 3
KILLS = 8
PATIENT = {"DOORSTEP_LEASE_SECONDS": "6", "DOORSTEP_TIMEOUT_SECONDS": "4"}
"""A busy machine must not open the circuit of the channel, which nobody here can wait for."""


class Told(NamedTuple):
    """What there is to tell, and what was told."""

    dead: set[str]
    alerts: list[dict[str, Any]]
    messages: set[str]
    alerts_told: set[str]
    deaths_told: list[str]

    @property
    def lost(self) -> int:
        unknown = sum(one["count"] for one in self.alerts)
        return (len(self.dead) - unknown) + len({one["alert_id"] for one in self.alerts} - self.alerts_told)

    def __str__(self) -> str:
        return (
            f"{len(self.dead)} dead letters, {len(self.alerts)} alerts, {len(self.messages)} messages, "
            f"{len(set(self.deaths_told))} operational events, {self.lost} lost"
        )


def test_nothing_is_lost_and_nothing_told_twice_while_whoever_tells_is_killed(
    install: Install, database: Database
) -> None:
    with open_office() as office:
        told = _trial(install(database, settings=PATIENT), office)
    print(f"\nalerts under kill -9 on {database.name}: {told}; {KILLS} kills")
    assert len(told.dead) == SHOPS * EVENTS_PER_SHOP
    assert told.lost == 0, str(told)
    assert sorted(one["endpoint_name"] for one in told.alerts) == sorted(f"shop-{n}" for n in range(SHOPS))
    assert len(told.messages) == SHOPS  # whatever arrived again did so under the same id
    assert set(told.deaths_told) == told.dead
    assert len(set(told.deaths_told)) == SHOPS * EVENTS_PER_SHOP


def test_the_harness_catches_incidents_that_are_removed_before_they_are_told(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    with open_office() as office:
        told = _trial(install(sqlite_database, program=program("tell-apart")), office, patience_seconds=12)
    print(f"\nremoved before they are told: {told}")
    assert told.lost > 0


def _trial(installation: Installation, office: Office, patience_seconds: float = 60.0) -> Told:
    installation.serve()
    installation.add_worker()
    channel = {"name": "office", "kind": "webhook", "target": f"{office.url}/alerts", "rules": ["dead_letter"]}
    _ask(installation, "/v1/channels", channel)
    listener = {"name": "operations", "url": f"{office.url}/operations", "event_types": ["delivery.dead"]}
    _ask(installation, "/v1/endpoints", listener | {"policy": [0.2] * 20, "circuit": {"failures_max": 1_000_000}})
    for n in range(SHOPS):
        form = {"name": f"shop-{n}", "url": f"{office.url}/shop/{n}", "event_types": [f"shop.{n}"]}
        _ask(installation, "/v1/endpoints", form)
    _send_while_killing(installation)
    with suppress(AssertionError):  # whether all has been told is what is judged afterwards
        await_condition(lambda: _all_told(_seen(installation, office)), "everything to be told", patience_seconds)
    return _seen(installation, office)


def _send_while_killing(installation: Installation) -> None:
    chance = random.Random(7)
    left = [f"shop.{n}" for n in range(SHOPS) for _ in range(EVENTS_PER_SHOP)]
    chance.shuffle(left)
    portion = len(left) // KILLS + 1
    for start in range(0, len(left), portion):
        for event_type in left[start : start + portion]:
            _send(installation, event_type)
        time.sleep(chance.uniform(0.0, 0.6))
        chance.choice(installation.engines).kill()
        installation.await_ready()


def _send(installation: Installation, event_type: str) -> None:
    _ask(installation, "/v1/events", {"event_type": event_type, "payload": 1})


def _ask(installation: Installation, path: str, body: object) -> None:
    status, answer = installation.ask("POST", path, body)
    assert status in (201, 202), answer


def _all_told(told: Told) -> bool:
    complete = len(told.dead) == SHOPS * EVENTS_PER_SHOP and set(told.deaths_told) == told.dead
    return complete and told.lost == 0 and len(told.alerts_told) == SHOPS


def _seen(installation: Installation, office: Office) -> Told:
    alerts = _all(installation, "/v1/alerts?rule=dead_letter&limit=200", "alerts")
    letters = _all(installation, "/v1/dead-letters?limit=200", "dead_letters")
    return Told(
        dead={one["delivery_id"] for one in letters},
        alerts=alerts,
        messages={one.event_id for one in office.to("/alerts")},
        alerts_told={one.body["data"]["alert_id"] for one in office.to("/alerts")},
        deaths_told=[one.body["data"]["delivery_id"] for one in office.to("/operations")],
    )


def _all(installation: Installation, path: str, plural: str) -> list[dict[str, Any]]:
    for _ in range(50):
        with suppress(OSError, http.client.HTTPException, ValueError):
            status, answer = installation.ask("GET", path)
            if status == 200:
                return list(answer[plural])
        time.sleep(0.1)
    raise AssertionError(f"no answer from {path}")
