"""A consumer of the inbox that is killed all the time. It records each lease, each handled event and each answer.

python -m tests.faults.inbox_consumer URL KEY JOURNAL
"""

from __future__ import annotations

import os
import sys
import time

from doorstep.client import Client, ClientError, Retrying

LEASE_SECONDS = 2.0
BATCH = 5
_WORK_SECONDS = 0.01


def main(url: str, key: str, journal: str) -> None:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, event_id: object, token: int, ends_at: object = "") -> None:
        os.write(file, f"{what} {event_id} {token} {ends_at}\n".encode())

    with Client(url, key, retrying=Retrying(tries_max=2)) as client:
        while True:
            try:
                leased = client.inbox.lease(limit=BATCH, visibility_seconds=LEASE_SECONDS)
                for event in leased:
                    assert event.visible_at is not None
                    note("leased", event.event_id, event.lease_token, event.visible_at.isoformat())
                for event in leased:
                    time.sleep(_WORK_SECONDS)
                    note("handled", event.event_id, event.lease_token)
                if leased:
                    answers = client.inbox.acknowledge_many(leased).events
                    for event, answer in zip(leased, answers, strict=True):
                        note(answer.result, event.event_id, event.lease_token)
            except ClientError:  # the server was killed too
                time.sleep(_WORK_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
