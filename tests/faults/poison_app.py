"""A program with a handler in which some payloads kill the whole worker: `doorstep worker --app`."""

from __future__ import annotations

import hashlib
import json
import os
import time

from doorstep.app import Doorstep
from doorstep.transports.handler_replies import Received

POISON = "poison"

doorstep = Doorstep()


def handle(received: Received) -> None:
    """Record the event. On the poison, die without output, like a crash in native code."""
    poisonous = POISON.encode() in received.payload
    digest = hashlib.sha256(received.payload).hexdigest()
    line = [time.time(), "handler", str(received.event_id), digest, None if poisonous else 200, 1]
    log = os.open(f"handler-{os.getpid()}.arrivals", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, json.dumps(line).encode() + b"\n")
    os.close(log)
    if poisonous:
        os._exit(9)


doorstep.register("handler", handle)
