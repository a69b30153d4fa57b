"""A shop that is killed all the time. Each transaction adds an order and sends its event on the shop's own connection.

    python -m tests.faults.outbox_program DATABASE_URL SENDER JOURNAL

It reads lines from standard input. Each line is the number of a life. A life is a forked process that runs transactions
until it is killed; the program prints its process id. Each life writes one letter to the journal as each transaction
ends.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from itertools import count
from typing import Any, Protocol

import psycopg

from doorstep import Doorstep

COMMITTED, ROLLED_BACK, PART_ROLLED_BACK = b"c", b"r", b"s"
"""How a transaction ends. PART_ROLLED_BACK undoes one order and its event to a savepoint, and keeps another."""


class Sender(Protocol):
    def __init__(self, ds: Doorstep, connection: Any) -> None: ...
    def before(self, order: str) -> None: ...
    def inside(self, order: str) -> None: ...
    def after(self, order: str) -> None: ...


class Atomic:
    """Sends on the transaction's connection, before or after it inserts the order."""

    def __init__(self, ds: Doorstep, connection: Any) -> None:
        self.ds = ds
        self.connection = connection

    def before(self, order: str) -> None:
        """Do nothing outside the transaction."""

    def inside(self, order: str) -> None:
        self.ds.send_sync("order.paid", {"order": order}, connection=self.connection)

    def after(self, order: str) -> None:
        """Do nothing outside the transaction."""


class TooEarly(Atomic):
    """A broken sender: sends the event before the transaction begins."""

    def before(self, order: str) -> None:
        self.ds.send_sync("order.paid", {"order": order})

    def inside(self, order: str) -> None:
        """Do nothing: the event has already been sent."""


class TooLate(Atomic):
    """A broken sender: sends the event after the transaction, if it still lives."""

    def inside(self, order: str) -> None:
        """Do nothing: the event will be sent later."""

    def after(self, order: str) -> None:
        self.ds.send_sync("order.paid", {"order": order})


SENDERS: dict[str, type[Sender]] = {"atomic": Atomic, "too-early": TooEarly, "too-late": TooLate}


class Life:
    def __init__(self, url: str, sender: str, journal: str, number: int) -> None:
        self._connection = connect(url)
        self._sender = SENDERS[sender](Doorstep(url), self._connection)
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND)
        self._number = number
        self._chance = random.Random(number)

    def live(self) -> None:
        for step in count():
            ending = self._chance.choice((COMMITTED, ROLLED_BACK, PART_ROLLED_BACK))
            self._transaction(f"{self._number}-{step}", ending)
            os.write(self._journal, ending)

    def _transaction(self, order: str, ending: bytes) -> None:
        self._sender.before(order)
        self._connection.execute("BEGIN")
        if ending == PART_ROLLED_BACK:
            self._connection.execute("SAVEPOINT part")
            self._order(f"{order}-undone")
            self._connection.execute("ROLLBACK TO part")
        self._order(order)
        self._connection.execute("ROLLBACK" if ending == ROLLED_BACK else "COMMIT")
        if ending != ROLLED_BACK:
            self._sender.after(order)

    def _order(self, order: str) -> None:
        first, second = self._insert, self._sender.inside
        if self._chance.random() < 0.5:
            first, second = second, first
        first(order)
        second(order)

    def _insert(self, order: str) -> None:
        self._connection.execute(f"INSERT INTO orders VALUES ('{order}')")


def connect(url: str) -> Any:
    """A connection that does not begin or end transactions by itself."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    return psycopg.connect(url, autocommit=True, application_name="shop")


def main(url: str, sender: str, journal: str) -> None:
    Doorstep(url)  # loads the lazily imported modules once, for all lives
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            Life(url, sender, journal, int(line)).live()
        print(pid, flush=True)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
