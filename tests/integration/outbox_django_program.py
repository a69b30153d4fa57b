"""A program that writes orders through Django's connections, in `transaction.atomic`, with and without savepoints and
rollbacks.

    python -m tests.integration.outbox_django_program sqlite:////path/shop.db

Prints its observations as JSON, including how often the forwarder was woken at each point.
"""

from __future__ import annotations

import json
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, connections, transaction

from doorstep import Doorstep
from doorstep.errors import InvalidInput


class Watched(Doorstep):
    woken = 0

    def wake(self) -> None:
        self.woken += 1


class Regret(Exception):
    """Raised to roll back an `atomic` block."""


def database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    place = {"NAME": parts.path[1:], "USER": parts.username, "HOST": parts.hostname, "PORT": parts.port}
    return {"ENGINE": "django.db.backends.postgresql", **place}


def main(url: str) -> None:
    settings.configure(DATABASES={"default": database(url)}, USE_TZ=True)
    django.setup()
    ds = Watched(url)
    seen: dict[str, object] = {}

    def order(name: str) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [name])
        ds.send_sync("order.paid", {"order": name}, connection=connection)

    with transaction.atomic():
        order("kept")
        seen["before the commit"] = ds.woken
    seen["after the commit"] = ds.woken

    try:
        with transaction.atomic():
            order("dropped")
            raise Regret
    except Regret:
        seen["after a rollback"] = ds.woken

    with transaction.atomic():
        try:
            with transaction.atomic():
                order("part-undone")
                raise Regret
        except Regret:
            order("part")
    seen["after a savepoint's rollback"] = ds.woken

    try:
        ds.send_sync("order.paid", {}, connection=connection)
    except InvalidInput as error:
        seen["without atomic"] = str(error)
    with transaction.atomic():
        ds.send_sync("order.paid", {"order": "last"}, connection=connections["default"])
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
