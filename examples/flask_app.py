"""A shop in Flask: `flask --app flask_app run`, and beside it `doorstep worker --app flask_app:doorstep`."""

import sqlite3
from contextlib import closing

from flask import Flask, request
from pydantic import BaseModel

from doorstep import Doorstep, Transient

doorstep = Doorstep("sqlite:///shop.db")
app = Flask(__name__)


class Order(BaseModel):
    item: str
    packets: int


@doorstep.handler("order.placed", policy={"delays": [1]})
def pack(order: Order) -> None:
    if order.packets > 10:
        raise Transient("OUT_OF_STOCK", "The shelf is empty.")
    print("packing", order.packets, "packets of", order.item, flush=True)


@app.post("/orders")
def place() -> tuple[str, int]:
    order = Order.model_validate(request.get_json())
    with closing(sqlite3.connect("shop.db", timeout=10)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT, packets INTEGER)")
        shop.execute("INSERT INTO orders VALUES (:item, :packets)", order.model_dump())
        doorstep.send_sync("order.placed", order, connection=shop)
    return "", 201
