"""A script that sends and delivers: `python script.py tea 2`."""

import sqlite3
import sys
from contextlib import closing

from pydantic import BaseModel

from doorstep import Doorstep

GRAMS = {"tea": 50, "coffee": 250}
doorstep = Doorstep("sqlite:///shop.db")


class Order(BaseModel):
    item: str
    packets: int


@doorstep.handler("order.placed", policy={"delays": [1]})
async def pack(order: Order) -> None:
    print("packing", GRAMS[order.item] * order.packets, "grams of", order.item, flush=True)


def place(order: Order) -> None:
    with closing(sqlite3.connect("shop.db", timeout=10)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT, packets INTEGER)")
        shop.execute("INSERT INTO orders VALUES (:item, :packets)", order.model_dump())
        doorstep.send_sync("order.placed", order, connection=shop)


if __name__ == "__main__":
    doorstep.send_sync("script.started", sys.argv)  # the first event creates Doorstep's tables
    place(Order(item=sys.argv[1], packets=int(sys.argv[2])))
    doorstep.run()
