"""Every problem is notified exactly once, while every process that could send the notification is killed repeatedly."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.faults.broken import ACT_SECONDS, program
from tests.faults.conftest import Install
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.telling import Office, open_office

SHOPS = 20
EVENTS_PER_SHOP = 3
KILLS = 8 if os.environ.get("TORTURE") else 5
PATIENT = {"DOORSTEP_LEASE_SECONDS": "6", "DOORSTEP_TIMEOUT_SECONDS": "4"}
"""Settings under which a busy machine does not open the channel's circuit, which these tests could not wait out."""
SOON_SECONDS = 30.0
_DEAD = "(SELECT count(*) FROM doorstep_deliveries WHERE state = 'dead')"
_INCIDENTS = "(SELECT count(*) FROM doorstep_incidents)"
NOTHING_TO_TELL = f"SELECT {_INCIDENTS} = 0"
_ALERTS = "(SELECT count(*) FROM doorstep_alerts)"
REMOVED_AND_UNTOLD = f"SELECT {_INCIDENTS} = 0 AND {_ALERTS} < {_DEAD}"
TOLD_AND_KEPT = f"SELECT {_INCIDENTS} > 0 AND {_ALERTS} = {_DEAD}"


class Told(NamedTuple):
    """What should have been notified, and what was. Compared item by item, so that a duplicate cannot hide a loss."""

    dead: dict[str, str]
    """The endpoint of each dead letter."""
    alerts: list[dict[str, Any]]
    news: set[tuple[str, str]]
    """Each alert that the channel received, with the message id."""
    deaths_told: set[tuple[str, str]]
    """Each dead letter that an operational event reported, with the id of that event."""

    @property
    def lost(self) -> set[str]:
        """Dead letters, alerts and endpoints with too few notifications."""
        unheard = {one["alert_id"] for one in self.alerts} - {alert_id for alert_id, _ in self.news}
        uncounted = {name for name, dead in self._dead_by_endpoint.items() if self._counted[name] < dead}
        return set(self.dead) - {letter for letter, _ in self.deaths_told} | unheard | uncounted

    @property
    def doubled(self) -> set[str]:
        """Those with too many notifications. A repeated arrival with the same id is the same message."""
        told = Counter([thing for thing, _ in (*self.news, *self.deaths_told)])
        alerts = Counter(one["endpoint_id"] for one in self.alerts)
        overcounted = {name for name, count in self._counted.items() if count > self._dead_by_endpoint[name]}
        return {thing for thing, times in (told + alerts).items() if times > 1} | overcounted

    @property
    def _dead_by_endpoint(self) -> Counter[str]:
        return Counter(self.dead.values())

    @property
    def _counted(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for one in self.alerts:
            counted[one["endpoint_id"]] += one["count"]
        return counted

    def __str__(self) -> str:
        return (
            f"{len(self.dead)} dead letters, {len(self.alerts)} alerts, {len(self.news)} messages, "
            f"{len(self.deaths_told)} operational events, {len(self.lost)} lost, {len(self.doubled)} told twice"
        )


def test_nothing_is_lost_and_nothing_told_twice_while_whoever_tells_is_killed(
    install: Install, database: Database
) -> None:
    with open_office() as office:
        told = _trial(install(database, settings=PATIENT), office)
    print(f"\nalerts under kill -9 on {database.name}: {told}; {KILLS} kills")
    assert len(told.dead) == SHOPS * EVENTS_PER_SHOP
    assert (told.lost, told.doubled) == (set(), set()), str(told)
    assert sorted(one["endpoint_name"] for one in told.alerts) == sorted(f"shop-{n}" for n in range(SHOPS))


@pytest.mark.full
def test_the_harness_catches_incidents_that_are_removed_before_they_are_told(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, settings=PATIENT, program=program("tell-apart"))
    with open_office() as office:
        until_caught(_killed_halfway(installation, office, REMOVED_AND_UNTOLD), lambda told: told.lost)


@pytest.mark.full
def test_the_harness_catches_incidents_that_are_told_before_they_are_removed(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, settings=PATIENT, program=program("tell-before"))
    with open_office() as office:
        until_caught(_killed_halfway(installation, office, TOLD_AND_KEPT), lambda told: told.doubled)


def _killed_halfway(installation: Installation, office: Office, halfway: str) -> Callable[[], Told]:
    """Each round creates a dead letter, and kills the only process between the two writes about it."""
    _furnish(installation, office)
    shops = itertools.cycle(range(SHOPS))

    def play() -> Told:
        _send(installation, f"shop.{next(shops)}")
        with suppress(AssertionError):  # the moment between the writes was missed
            await_condition(lambda: installation.database.rows(halfway)[0][0], "one of the writes", SOON_SECONDS)
        installation.server.kill()
        installation.await_ready()
        await_condition(lambda: installation.database.rows(NOTHING_TO_TELL)[0][0], "all that is left to be told")
        time.sleep(ACT_SECONDS)
        return _seen(installation, office)

    return play


def _trial(installation: Installation, office: Office) -> Told:
    _furnish(installation, office)
    installation.add_worker()
    _send_while_killing(installation)
    with suppress(AssertionError):  # the caller checks whether everything was notified
        await_condition(lambda: _all_told(_seen(installation, office)), "everything to be told")
    return _seen(installation, office)


def _furnish(installation: Installation, office: Office) -> None:
    installation.serve()
    channel = {"name": "office", "kind": "webhook", "target": f"{office.url}/alerts", "rules": ["dead_letter"]}
    _ask(installation, "/v1/channels", channel)
    listener = {"name": "operations", "url": f"{office.url}/operations", "event_types": ["delivery.dead"]}
    _ask(installation, "/v1/endpoints", listener | {"policy": [0.2] * 20, "circuit": {"failures_max": 1_000_000}})
    for n in range(SHOPS):
        form = {"name": f"shop-{n}", "url": f"{office.url}/shop/{n}", "event_types": [f"shop.{n}"]}
        _ask(installation, "/v1/endpoints", form)


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
    return len(told.dead) == SHOPS * EVENTS_PER_SHOP and not told.lost and len(told.alerts) == SHOPS


def _seen(installation: Installation, office: Office) -> Told:
    letters = _all(installation, "/v1/dead-letters?limit=200", "dead_letters")
    return Told(
        dead={one["delivery_id"]: one["endpoint_id"] for one in letters},
        alerts=_all(installation, "/v1/alerts?rule=dead_letter&limit=200", "alerts"),
        news={(one.body["data"]["alert_id"], one.event_id) for one in office.to("/alerts")},
        deaths_told={(one.body["data"]["delivery_id"], one.event_id) for one in office.to("/operations")},
    )


def _all(installation: Installation, path: str, plural: str) -> list[dict[str, Any]]:
    for _ in range(50):
        with suppress(OSError, http.client.HTTPException, ValueError):
            status, answer = installation.ask("GET", path)
            if status == 200:
                return list(answer[plural])
        time.sleep(0.1)
    raise AssertionError(f"no answer from {path}")
