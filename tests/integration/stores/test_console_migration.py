"""An installation that was counting and alerting before goes on with what it had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import TableClause, column, create_engine, insert, table

from doorstep.clock import SECOND, Instant
from doorstep.model.alert import Alert, Rule
from doorstep.model.ids import uuid7
from doorstep.model.rollup import Figures, Span
from doorstep.policy.alerting import Rules, reviewed
from doorstep.stores.opening import store_from_url
from doorstep.stores.sql.migrations import VERSION_TABLE
from doorstep.stores.sql.schema import metadata
from doorstep.stores.store import Store
from tests.support.builders import an_org
from tests.support.postgres_server import PostgresServer
from tests.unit.stores.old_databases import driven, migrate_to

NOW: Instant = 1_900_000_000 * SECOND
MINUTE = Span.MINUTE.start(NOW)
ORG = an_org()

_FIGURES = ("deliveries", "succeeded", "ttd_3", "ttd_us")


def _table(name: str, *columns: str) -> TableClause:
    return table(name, *map(column, columns))


_orgs = _table("doorstep_orgs", "id", "uid", "document")
_ticks = _table("doorstep_ticks", "org_id", "endpoint_id", "minute", "shard", *_FIGURES)
_rollups = _table("doorstep_rollups", "org_id", "endpoint_id", "span", "at", *_FIGURES)
_audit = _table("doorstep_audit", "org_id", "at", "actor", "action", "subjects", "result", "reason")
_alerts = _table("doorstep_alerts", "uid", "org_id", "subject", "rule", "ended_at", "version", "document")


class Old:
    """A database at revision 0002, in both spellings of its URL."""

    def __init__(self, url: str, spelt: str) -> None:
        self._url, self._spelt = url, spelt
        migrate_to("0002", spelt)
        self.add(_orgs, id=1, uid=ORG.org_id, document=msgspec.json.encode(ORG).decode())

    def add(self, rows: TableClause, **values: object) -> None:
        self.add_all(rows, [values])

    def add_all(self, rows: TableClause, all_values: Sequence[Mapping[str, object]]) -> None:
        engine = create_engine(self._spelt)
        as_bytes = engine.dialect.name == "sqlite"
        plain = [
            {name: one.bytes if as_bytes and isinstance(one, UUID) else one for name, one in values.items()}
            for values in all_values
        ]
        with engine.begin() as connection:
            connection.execute(insert(rows), plain)
        engine.dispose()

    async def upgraded(self) -> Store:
        store = store_from_url(self._url)
        await store.migrate()
        await store.open()
        return store

    def differences(self) -> object:
        engine = create_engine(self._spelt)
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            found = compare_metadata(context, metadata)
        engine.dispose()
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'old.db'}"
        yield Old(url, url)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.create_database("at_0002")
    yield Old(server.url("at_0002"), driven(server.url("at_0002")))
    server.drop_database("at_0002")


async def test_figures_of_before_are_kept_and_their_times_are_in_milliseconds(old: Old) -> None:
    counted = {"deliveries": 3, "succeeded": 2, "ttd_3": 2, "ttd_us": 7_654_321}
    owners = ({"org_id": 1, "endpoint_id": 5}, {"org_id": 1, "endpoint_id": 0}, {"org_id": 0, "endpoint_id": 0})
    for owner in owners:
        for span in Span:
            old.add(_rollups, **owner, span=span.value, at=span.start(MINUTE - 60 * SECOND), **counted)
    old.add(_ticks, org_id=1, endpoint_id=5, minute=MINUTE, shard=0, **counted)
    store = await old.upgraded()
    for org_id in (ORG.org_id, None):
        for found in (await store.totals(org_id), await _of_both_minutes(store, org_id)):
            assert (found.deliveries, found.succeeded, found.ttd_3, found.ttd_ms) == (6, 4, 4, 2 * 7_654)
    await store.fold(NOW + 60 * SECOND, 100)
    assert (await store.totals()).ttd_ms == 2 * 7_654
    await store.close()


async def _of_both_minutes(store: Store, org_id: UUID | None) -> Figures:
    before, then = await store.series(org_id, None, Span.MINUTE, MINUTE - 600 * SECOND, NOW)
    return before.figures + then.figures


@pytest.mark.parametrize("rule", [Rule.FAILURE_RATE, Rule.CIRCUIT_OPENED, Rule.DEAD_LETTER])
async def test_an_alert_that_was_open_before_is_reviewed_and_then_only_when_it_has_to_be(old: Old, rule: Rule) -> None:
    _put_alert(old, open_before := _alert(rule))
    store = await old.upgraded()
    assert await store.orgs_to_review(NOW) == [ORG.org_id]
    (found,) = await store.live_alerts(ORG.org_id, 0)
    assert msgspec.structs.replace(found, review_at=None) == open_before
    step = reviewed(found, Rules(ORG.org_id), NOW)
    assert step is not None and step.alert.review_at != 0, "it would be due for ever"
    assert step.news is None, "everybody knows"
    await store.close()


async def test_an_alert_that_was_over_before_stays_so(old: Old) -> None:
    _put_alert(old, over := _alert(Rule.CIRCUIT_OPENED, ended_at=NOW - SECOND, told=False))
    store = await old.upgraded()
    assert await store.orgs_to_review(NOW) == []
    assert await store.live_alerts(ORG.org_id, NOW - 2 * SECOND) == [over]
    await store.close()


async def test_lines_of_the_audit_from_before_are_found_by_what_they_are_about(old: Old) -> None:
    """More than are read at once, one about more than are filed at once, some about what has names instead of ids."""
    wanted, last, lines = uuid7(NOW), uuid7(NOW), 203
    texts = [json.dumps(["invoices", f"é {n}"]) for n in range(lines)]
    texts[0] = texts[-1] = json.dumps([str(wanted), str(uuid7(NOW)), str(wanted)])
    texts[1] = json.dumps([*(str(UUID(int=n)) for n in range(10_002)), str(last)])
    common = {"org_id": 1, "actor": "ops", "action": "x", "result": "", "reason": ""}
    old.add_all(_audit, [{**common, "at": n, "subjects": text} for n, text in enumerate(texts)])
    store = await old.upgraded()
    found = await store.list_audit(ORG.org_id, about=[wanted])
    assert ([line.at for line in found.items], found.next) == ([lines - 1, 0], None)
    for subject in (UUID(int=0), UUID(int=9_999), UUID(int=10_000), last):
        assert [line.at for line in (await store.list_audit(ORG.org_id, about=[subject])).items] == [1]
    assert len((await store.list_audit(ORG.org_id, limit=1_000)).items) == lines
    await store.close()


async def test_an_upgraded_database_has_every_table_column_and_index_that_is_declared(old: Old) -> None:
    await (await old.upgraded()).close()
    assert old.differences() == []


def _alert(rule: Rule, **changes: object) -> Alert:
    opened_at = NOW - 300 * SECOND
    alert = Alert(
        alert_id=uuid7(opened_at),
        org_id=ORG.org_id,
        rule=rule,
        opened_at=opened_at,
        seen_at=opened_at,
        reason="a \N{BLACK HEART SUIT} and a \0 in it",
        told=True,
        told_at=opened_at,
        version=1,
    )
    return msgspec.structs.replace(alert, **changes)


def _put_alert(old: Old, alert: Alert) -> None:
    document = msgspec.to_builtins(alert)
    for name in ("review_at", "ended_because"):  # nobody wrote these yet
        del document[name]
    old.add(
        _alerts,
        uid=alert.alert_id,
        org_id=1,
        subject=alert.subject,
        rule=alert.rule.value,
        ended_at=alert.ended_at,
        version=alert.version,
        document=json.dumps(document),
    )
