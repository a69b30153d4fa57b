"""Receiving webhooks in Flask. Run it with: flask --app flask_receiver run --port 9000"""

import os

from flask import Flask, request

from doorstep.receiver import Once, SqliteLedger, StillHandling, Unverified, Webhook

app = Flask(__name__)
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
once = Once(SqliteLedger(os.environ.get("LEDGER", "handled.db")))


def handle(order: dict[str, object]) -> None:
    print("paid:", order, flush=True)


@app.post("/hook")
def hook() -> tuple[str, int]:
    try:
        received = webhook.verify(request.headers, request.get_data())
        with once(received.webhook_id) as first:
            if first:
                handle(received.json())
    except Unverified as error:
        return str(error), 401
    except StillHandling as error:
        return str(error), 503
    return "", 204
