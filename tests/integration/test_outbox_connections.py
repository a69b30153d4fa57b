"""The event exists if and only if the transaction commits, on every kind of connection, and arrives soon after."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from doorstep import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import InvalidInput
from doorstep.model.event import EventStatus
from doorstep.model.outbox import Posted
from tests.integration import outbox_shop as shop
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture(params=[(kind, way) for kind, ways in shop.WAYS.items() for way in ways], ids=lambda p: p[1].__name__)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[shop.Way, str]:
    """A way to write, and the URL of its database."""
    kind, function = request.param
    url = f"sqlite:///{tmp_path / 'shop.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    return function, url


async def test_the_event_exists_if_and_only_if_the_transaction_commits(way: tuple[shop.Way, str]) -> None:
    write, url = way
    async with shop.running(url) as (ds, arrived):
        await write(ds, url, "kept", "commit")
        await write(ds, url, "dropped", "rollback")
        await write(ds, url, "part", "savepoint")
        await write(ds, url, "last", "commit")
        await shop.until_forwarded(ds, arrived, 3)
        assert sorted(arrived) == sorted(await shop.execute(url, "SELECT id FROM orders")) == ["kept", "last", "part"]


async def test_the_event_can_be_read_right_after_the_commit_and_is_the_one_that_arrives(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with shop.running(f"sqlite:///{path}") as (ds, arrived):
        with closing(sqlite3.connect(path)) as connection:
            posted = ds.send_sync("order.paid", {"order": "1"}, connection=connection, correlation_id="c-1")
            connection.commit()
        assert isinstance(posted, Posted)
        event = await ds.event(posted.event_id)
        assert event.correlation_id == "c-1"
        assert event.created_at >= posted.created_at
        await shop.until_forwarded(ds, arrived, 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await ds.components.reader.event(DEFAULT_ORG, posted.event_id)).status is not EventStatus.DELIVERED:
                await asyncio.sleep(0.002)


async def test_sending_on_a_connection_needs_no_opened_doorstep(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with shop.running(f"sqlite:///{path}") as (ds, arrived):
        closed = Doorstep(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            closed.send_sync("order.paid", {"order": "1"}, connection=connection)
            connection.commit()
        await shop.until_forwarded(ds, arrived, 1)


# -- refused calls -----------------------------------------------------------------------------------------


def by_itself_sqlite3(path: Path) -> object:
    return sqlite3.connect(path, isolation_level=None)


def by_itself_sqlalchemy(path: Path) -> object:
    return create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT").connect()


def by_itself_sqlalchemy_option(path: Path) -> object:
    return create_engine(f"sqlite:///{path}").connect().execution_options(isolation_level="AUTOCOMMIT")


def by_itself_sqlalchemy_session(path: Path) -> object:
    return Session(create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT"))


def by_itself_driver(path: Path) -> object:
    return create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None}).connect()


def by_itself_driver_of_session(path: Path) -> object:
    return Session(create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None}))


@pytest.mark.parametrize(
    "connect",
    [
        by_itself_sqlite3,
        by_itself_sqlalchemy,
        by_itself_sqlalchemy_option,
        by_itself_sqlalchemy_session,
        by_itself_driver,
        by_itself_driver_of_session,
    ],
)
def test_a_connection_that_commits_each_statement_is_refused(tmp_path: Path, connect: Callable[[Path], object]) -> None:
    ds, connection = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}"), connect(tmp_path / "shop.db")
    with pytest.raises(InvalidInput, match="connection: must be in a transaction"):
        ds.send_sync("order.paid", {}, connection=connection)
    connection.close()  # type: ignore[attr-defined]


def test_a_plain_connection_in_a_transaction_that_was_begun_by_hand_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    asyncio.run(Doorstep(f"sqlite:///{path}")._store.migrate())
    with closing(by_itself_sqlite3(path)) as connection:  # type: ignore[type-var]
        connection.execute("BEGIN")
        Doorstep(f"sqlite:///{path}").send_sync("order.paid", {}, connection=connection)
        connection.execute("COMMIT")


def test_a_program_that_begins_by_itself_when_sqlalchemy_says_so_is_taken(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    asyncio.run(Doorstep(url)._store.migrate())
    engine = create_engine(url, connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    for ending, found in (("rollback", 0), ("commit", 1)):
        with engine.connect() as connection:
            Doorstep(url).send_sync("order.paid", {}, connection=connection)
            getattr(connection, ending)()
            assert connection.exec_driver_sql("SELECT count(*) FROM doorstep_outbox").scalar() == found
    engine.dispose()


async def test_asyncio_engines_whose_driver_commits_each_statement_are_refused(
    postgres_url: str, tmp_path: Path
) -> None:
    path, place = tmp_path / "shop.db", postgres_url.partition("://")[2]
    for url, engine in {
        f"sqlite:///{path}": create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"isolation_level": None}),
        postgres_url: create_async_engine(f"postgresql+psycopg://{place}", connect_args={"autocommit": True}),
    }.items():
        async with engine.connect() as connection:
            with pytest.raises(InvalidInput, match="transaction"):
                await Doorstep(url).send("order.paid", {}, connection=connection)
        await engine.dispose()


async def test_asyncio_connections_that_commit_each_statement_are_refused(postgres_url: str, tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "shop.db", isolation_level=None) as connection:
        with pytest.raises(InvalidInput, match="transaction"):
            await Doorstep(f"sqlite:///{tmp_path / 'shop.db'}").send("order.paid", {}, connection=connection)
    ds = Doorstep(postgres_url)
    plain = await asyncpg.connect(postgres_url)
    with pytest.raises(InvalidInput, match="transaction"):
        await ds.send("order.paid", {}, connection=plain)
    await plain.close()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as careless:
        with pytest.raises(InvalidInput, match="transaction"):
            await ds.send("order.paid", {}, connection=careless)
        async with careless.transaction():
            await ds.send("order.paid", {}, connection=careless)
    with psycopg.connect(postgres_url, autocommit=True) as blocking, pytest.raises(InvalidInput, match="transaction"):
        ds.send_sync("order.paid", {}, connection=blocking)


def test_a_connection_to_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    ds = Doorstep("postgresql://shop@127.0.0.1/shop")
    foreign = closing(sqlite3.connect(tmp_path / "shop.db"))
    with foreign as connection, pytest.raises(InvalidInput, match="postgresql database of Doorstep, got one to sqlite"):
        ds.send_sync("order.paid", {}, connection=connection)


def test_what_is_no_connection_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"connection: .*got builtins.str"):
        Doorstep(f"sqlite:///{tmp_path / 'shop.db'}").send_sync("order.paid", {}, connection="shop.db")


def test_a_session_that_was_forgotten_to_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="connection: .*got None; leave it out to send without one"):
        Doorstep(f"sqlite:///{tmp_path / 'shop.db'}").send_sync("order.paid", {}, connection=None)


async def test_the_blocking_call_refuses_an_asyncio_connection_and_inserts_nothing(tmp_path: Path) -> None:
    ds = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    await ds.open()
    async with aiosqlite.connect(tmp_path / "shop.db") as connection:
        with pytest.raises(InvalidInput, match="is an asyncio connection; await the method"):
            ds.send_sync("order.paid", {}, connection=connection)
        assert not connection.in_transaction
    await ds.close()


async def test_a_forgotten_await_on_a_blocking_connection_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ds = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    await ds.open()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        ds.send("order.paid", {}, connection=connection)  # type: ignore[unused-coroutine]
        posted = await ds.send("order.paid", {}, connection=connection)
        assert connection.execute("SELECT count(*), max(uid) FROM doorstep_outbox").fetchone() == (
            2,
            posted.event_id.bytes,
        )
    assert not caplog.records
    await ds.close()


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("deliver_at", 1.75e9),
        ("deliver_at", "tomorrow"),
        ("expires_at", 2**63),
        ("expires_at", True),
        ("endpoint_ids", ["nonsense"]),
        ("endpoint_ids", "nonsense"),
        ("endpoint_ids", 7),
        ("org_id", "default"),
    ],
)
async def test_options_of_the_wrong_kind_are_refused_with_and_without_a_connection(
    field: str, wrong: object, tmp_path: Path
) -> None:
    ds = Doorstep(f"sqlite:///{tmp_path / 'shop.db'}")
    await ds.open()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, pytest.raises(InvalidInput) as refused:
        ds.send_sync("order.paid", {}, connection=connection, **{field: wrong})  # type: ignore[call-overload]
    assert refused.value.field == field
    with pytest.raises(InvalidInput) as refused:
        await ds.send("order.paid", {}, **{field: wrong})  # type: ignore[call-overload]
    assert refused.value.field == field
    await ds.close()


def test_a_key_together_with_a_connection_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, pytest.raises(InvalidInput, match="its transac"):
        Doorstep(f"sqlite:///{tmp_path / 'shop.db'}").send_sync("a.b", {}, connection=connection, idempotency_key="k")


def test_a_database_without_the_tables_says_what_to_do(tmp_path: Path) -> None:
    empty = closing(sqlite3.connect(tmp_path / "shop.db"))
    with empty as connection, pytest.raises(sqlite3.OperationalError) as error:
        Doorstep(f"sqlite:///{tmp_path / 'shop.db'}").send_sync("a.b", {}, connection=connection)
    assert "doorstep migrate" in "".join(error.value.__notes__)


def test_other_errors_of_the_driver_pass_without_that_advice(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    asyncio.run(Doorstep(f"sqlite:///{path}")._store.migrate())
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError) as error:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON doorstep_outbox BEGIN SELECT RAISE(ABORT, 'doorstep_outbox: no'); END"
        )
        Doorstep(f"sqlite:///{path}").send_sync("a.b", {}, connection=connection)
    assert not hasattr(error.value, "__notes__")
