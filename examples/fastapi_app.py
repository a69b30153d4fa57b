"""A shop in FastAPI: `uvicorn fastapi_app:app`."""

import sqlite3
from contextlib import closing

from fastapi import FastAPI
from pydantic import BaseModel

from doorstep import Doorstep

GRAMS = {"tea": 50, "coffee": 250}
doorstep = Doorstep("sqlite:///shop.db")
app = FastAPI(lifespan=doorstep.lifespan)


class Order(BaseModel):
    item: str
    packets: int


@doorstep.handler("order.placed", policy={"delays": [1]})
def pack(order: Order) -> None:
    print("packing", GRAMS[order.item] * order.packets, "grams of", order.item, flush=True)


@app.post("/orders", status_code=201)
def place(order: Order) -> None:
    with closing(sqlite3.connect("shop.db", timeout=10)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT, packets INTEGER)")
        shop.execute("INSERT INTO orders VALUES (:item, :packets)", order.model_dump())
        doorstep.send_sync("order.placed", order, connection=shop)
