"""Receiving webhooks in FastAPI. Run it with: uvicorn fastapi_receiver:app --port 9000"""

import os

from fastapi import FastAPI, Request, Response

from doorstep.receiver import Once, SqliteLedger, StillHandling, Unverified, Webhook

app = FastAPI()
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
once = Once(SqliteLedger(os.environ.get("LEDGER", "handled.db")))


async def handle(order: dict[str, object]) -> None:
    print("paid:", order, flush=True)


@app.post("/hook")
async def hook(request: Request) -> Response:
    try:
        received = webhook.verify(request.headers, await request.body())
        with once(received.webhook_id) as first:
            if first:
                await handle(received.json())
    except Unverified as error:
        return Response(str(error), 401)
    except StillHandling as error:
        return Response(str(error), 503)
    return Response(status_code=204)
