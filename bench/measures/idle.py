"""The CPU of an idle `doorstep serve` process."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.figures import Figure, at_most
from bench.serving import Serving
from bench.setting import Setting
from bench.stock import Wanted, stock

TARGET = at_most(2.0)
_SETTLE_SECONDS = 1.0


def measure(setting: Setting) -> Iterator[Figure]:
    seconds = setting.scaled(10, 3)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            stock(database, Wanted(setting.receiver.url("ok")))
            with Serving(database) as serving:
                time.sleep(_SETTLE_SECONDS)
                before = serving.cpu_seconds()
                time.sleep(seconds)
                share = (serving.cpu_seconds() - before) / seconds
        yield Figure(f"{store}: CPU of an idle process", 100 * share, "% of a core", TARGET)
