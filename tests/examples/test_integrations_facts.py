"""What the integrations profile was asked for, asserted over HTTP, SQL and on the screens of its running server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from doorstep.client import AsyncClient
from examples.integrations.queues import IntegrationQueues
from tests.console.visiting import Console, Shown
from tests.examples.served import Served, fact, profile_served
from tests.support.http_calls import Answer
from tests.support.program import wait_for
from tests.support.receiver import Receiver, receiving
from tests.support.stores import EITHER_STORE

API = "/api/integrations"
QUEUE, LETTERS = f"{API}/retry-queue", f"{API}/dead-letter-queue"
SCREENS = "/integrations/logs"
FIELDS = [
    "id",
    "org_id",
    "log_id",
    "retry_count",
    "max_retries",
    "retry_policy",
    "next_retry_at",
    "last_retry_at",
    "status",
    "in_dlq",
    "error_message",
    "error_stack",
    "created_at",
    "updated_at",
]
UNKNOWN = "01990000-0000-7000-8000-000000000000"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


@pytest.fixture(scope="module", params=EITHER_STORE)
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Any]:
    """The profile. Its ERP and its partner are the receiver."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    systems = {"ERP_URL": receiver.url, "PARTNER_URL": receiver.url}
    folder = tmp_path_factory.mktemp("integrations")
    with profile_served("integrations", request.param, folder, server, **systems) as served:
        yield served


@pytest.fixture(autouse=True)
def nothing_is_left(hub: Served, receiver: Receiver) -> Iterator[None]:
    """Each test begins with empty queues and a receiver that answers 200."""
    receiver.status = 200
    receiver.hold.set()
    yield
    receiver.status = 200
    receiver.hold.set()
    wait_for(lambda: listed(hub, QUEUE, status="in_progress") == [])
    for one in listed(hub, QUEUE):
        hub.program.post(f"{QUEUE}/{one['id']}/skip")
    for one in listed(hub, LETTERS):
        hub.program.request("DELETE", f"{LETTERS}/{one['id']}")


def listed(hub: Served, path: str, key: str | None = None, **filters: object) -> list[Json]:
    return list(page(hub, path, key, **filters)["entries"])


def page(hub: Served, path: str, key: str | None = None, **filters: object) -> Json:
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    found = hub.program.get(f"{path}?{query}", **({"key": key} if key else {}))
    assert found.status == 200, found.body
    return dict(found.json)


def system(hub: Served, receiver: Receiver, policy: object = None) -> str:
    """A new external system, reached by webhook. Returns the event type that it takes."""
    kind = f"of.{uuid4().hex}"
    given = {"name": kind, "url": receiver.url, "event_types": [kind], "policy": policy}
    made = hub.program.post("/v1/endpoints", given)
    assert made.status == 201, made.body
    return kind


def send(hub: Served, event_type: str, payload: object = 1) -> str:
    sent = hub.program.post("/v1/events", {"event_type": event_type, "payload": payload})
    assert sent.status == 202, sent.body
    return str(sent.json["event_id"])


def failing(hub: Served, receiver: Receiver, event_type: str = "stock.counted", status: int = 503) -> Json:
    """An entry of the retry queue; by default one of the ERP, whose policy is manual."""
    before = {one["id"] for one in listed(hub, QUEUE)}
    receiver.status = status
    send(hub, event_type, {"number": "R-7", "amount": 120, "buyer": "ACME"})
    (new,) = wait_for(lambda: [one for one in listed(hub, QUEUE, status="pending") if one["id"] not in before])
    return new


def dead(hub: Served, receiver: Receiver, event_type: str = "stock.counted") -> Json:
    entry = failing(hub, receiver, event_type)
    skipped = hub.program.post(f"{QUEUE}/{entry['id']}/skip")
    assert skipped.status == 200, skipped.body
    return dict(skipped.json)


def act(hub: Served, path: str, body: object = None, *, key: str | None = None, method: str = "POST") -> Answer:
    return hub.program.request(method, path, body, **({"key": key} if key else {}))


def seconds(entry: Json) -> float:
    """The pause before the next retry."""
    at = [datetime.fromisoformat(entry[name]) for name in ("next_retry_at", "updated_at")]
    return round((at[0] - at[1]).total_seconds(), 1)


# -- the entry -----------------------------------------------------------------------------------------------------------


@fact(
    "an entry has id, org_id, log_id, retry_count, max_retries, retry_policy, next_retry_at, last_retry_at, status,"
    " in_dlq, error_message, error_stack, created_at, updated_at",
    "retry_count is a number, and max_retries is 3",
    "GET …/retry-queue",
)
def test_an_entry_has_its_fields(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    assert list(entry) == FIELDS
    assert UUID(entry["id"]) and UUID(entry["org_id"]) and entry["log_id"] == entry["id"]
    assert (entry["retry_count"], entry["max_retries"], entry["last_retry_at"]) == (0, 3, None)
    assert (entry["status"], entry["in_dlq"]) == ("pending", False)
    assert entry["error_message"] == "The ERP is not available (503)."
    assert "Traceback" in entry["error_stack"] and "ErpError" in entry["error_stack"]
    assert entry["created_at"] == entry["updated_at"] and entry["created_at"].endswith("Z")
    assert hub.program.get(f"{QUEUE}/{entry['id']}").json == entry


@fact("retry_policy exponential, the default: 5 s, 30 s, 5 min; retry_count up to 3, then failed in the dead letters")
def test_exponential_is_the_default_and_waits_5_30_and_300_seconds(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver, system(hub, receiver))
    pauses, counts = [seconds(entry)], [entry["retry_count"]]
    assert entry["retry_policy"] == "exponential"
    for _ in range(3):
        entry = act(hub, f"{QUEUE}/{entry['id']}/retry").json["entry"]
        counts.append(entry["retry_count"])
        pauses += [seconds(entry)] if entry["next_retry_at"] else []
    assert (pauses, counts) == ([5, 30, 300], [0, 1, 2, 3])
    assert (entry["status"], entry["in_dlq"], entry["next_retry_at"]) == ("failed", True, None)


@fact("retry_policy immediate: 5 s always")
def test_immediate_waits_5_seconds_each_time(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver, "invoice.issued.partner")
    assert entry["retry_policy"] == "immediate", "the partner's policy"
    pauses = [seconds(entry)]
    for _ in range(2):
        entry = act(hub, f"{QUEUE}/{entry['id']}/retry").json["entry"]
        pauses.append(seconds(entry))
    assert pauses == [5, 5, 5]


@fact("retry_policy manual: stays in the queue, next_retry_at null, until an administrator acts")
def test_manual_stays_in_the_queue_until_an_administrator_acts(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    assert (entry["retry_policy"], entry["next_retry_at"]) == ("manual", None)
    for count in range(1, 5):
        again = act(hub, f"{QUEUE}/{entry['id']}/retry").json["entry"]
        assert (again["status"], again["next_retry_at"], again["retry_count"]) == ("pending", None, count)
        assert again["max_retries"] == 3
        assert again["last_retry_at"] is not None
    assert [one["id"] for one in listed(hub, QUEUE)] == [entry["id"]]


@fact("status is pending, in_progress, succeeded or failed")
def test_an_entry_has_each_status(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    receiver.hold.clear()
    running = act(hub, f"{QUEUE}/{entry['id']}/retry?wait_seconds=0")
    assert (running.status, running.json["message"]) == (202, None), "the outcome is not known"
    (one,) = wait_for(lambda: listed(hub, QUEUE, status="in_progress"))
    assert (one["id"], one["status"]) == (entry["id"], "in_progress")
    receiver.status = 200
    receiver.hold.set()
    wait_for(lambda: listed(hub, QUEUE) == [])
    assert hub.program.get(f"{QUEUE}/{entry['id']}").json["status"] == "succeeded"
    assert dead(hub, receiver)["status"] == "failed"


# -- routes --------------------------------------------------------------------------------------------------------------


@fact("POST …/retry-queue/{id}/retry", "Retry successful. Event removed from queue.")
def test_a_manual_retry_says_what_became_of_it(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    again = act(hub, f"{QUEUE}/{entry['id']}/retry")
    assert (again.status, again.json["message"]) == (200, "Retry failed: The ERP is not available (503).")
    receiver.status = 200
    done = act(hub, f"{QUEUE}/{entry['id']}/retry")
    assert (done.status, done.json["message"]) == (200, "Retry successful. Event removed from queue.")
    assert (done.json["entry"]["status"], listed(hub, QUEUE)) == ("succeeded", [])
    assert act(hub, f"{QUEUE}/{entry['id']}/retry").status == 409
    assert act(hub, f"{QUEUE}/{UNKNOWN}/retry").status == 404


@fact(
    "POST …/retry-queue/bulk-retry: succeeded, failed",
    "3/5 succeeded, 2/5 failed while it runs",
    "Bulk retry complete. 3 succeeded, 2 failed. at its end",
)
def test_a_bulk_retry_counts_while_it_runs_and_at_its_end(hub: Served, receiver: Receiver) -> None:
    kinds = [system(hub, receiver, {"delays": [300, 300]}) for _ in range(5)]
    entries = [failing(hub, receiver, kind) for kind in kinds]
    broken = hub.program.get("/v1/endpoints?limit=200").json["endpoints"]
    for one in broken:
        if one["name"] in kinds[3:]:
            hub.program.request("PATCH", f"/v1/endpoints/{one['endpoint_id']}", {"url": "http://127.0.0.1:9/"})
    receiver.status = 200
    receiver.hold.clear()
    ids = [one["id"] for one in entries]
    started = act(hub, f"{QUEUE}/bulk-retry?wait_seconds=0", {"ids": ids})
    assert (started.status, started.json["complete"]) == (202, False)
    assert started.json["message"] == "0/5 succeeded, 0/5 failed"
    place = f"{QUEUE}/bulk-retry/{started.json['bulk_id']}"
    wait_for(lambda: hub.program.get(place).json["message"] == "0/5 succeeded, 2/5 failed")
    receiver.hold.set()
    wait_for(lambda: hub.program.get(place).json["complete"])
    done = hub.program.get(place).json
    assert (done["succeeded"], done["failed"], done["total"]) == (3, 2, 5)
    assert done["message"] == "Bulk retry complete. 3 succeeded, 2 failed."
    assert {one["id"] for one in listed(hub, QUEUE)} == set(ids[3:])
    again = act(hub, f"{QUEUE}/bulk-retry", {"ids": ids[:1]})
    assert (again.status, again.json["failed"]) == (200, 1), "it has left the queue"
    assert act(hub, f"{QUEUE}/bulk-retry", {"ids": []}).status == 422


@fact("POST …/retry-queue/{id}/skip", "a dead letter keeps its original error and its history, even after a skip")
def test_a_skipped_entry_keeps_its_error_and_its_history(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    skipped = act(hub, f"{QUEUE}/{entry['id']}/skip")
    assert skipped.status == 200
    (letter,) = listed(hub, LETTERS)
    assert letter == skipped.json and (letter["status"], letter["in_dlq"]) == ("failed", True)
    same = ("id", "error_message", "error_stack", "created_at", "retry_count")
    assert [letter[name] for name in same] == [entry[name] for name in same]
    log = hub.program.get(f"{API}/logs/{letter['log_id']}").json
    assert [one["error_message"] for one in log["attempts"]] == [entry["error_message"]]
    assert act(hub, f"{QUEUE}/{entry['id']}/skip").status == 409


@fact("GET …/dead-letter-queue, newest first, filtered by type and date with a true count")
def test_dead_letters_are_newest_first_and_filtered_with_a_true_count(hub: Served, receiver: Receiver) -> None:
    kind = system(hub, receiver)
    letters = [dead(hub, receiver, one) for one in (kind, "stock.counted", kind)]
    found = page(hub, LETTERS, limit=2)
    assert [one["id"] for one in found["entries"]] == [letters[2]["id"], letters[1]["id"]]
    assert found["pagination"]["total_count"] == 3 and found["pagination"]["has_more"]
    rest = page(hub, LETTERS, limit=2, cursor=found["pagination"]["cursor"])
    assert [one["id"] for one in rest["entries"]] == [letters[0]["id"]]
    typed = page(hub, LETTERS, event_type=kind)
    assert (len(typed["entries"]), typed["pagination"]["total_count"]) == (2, 2)
    for dates, count in (({"date_from": letters[1]["updated_at"]}, 2), ({"date_to": letters[1]["updated_at"]}, 1)):
        dated = page(hub, LETTERS, **dates)
        assert (len(dated["entries"]), dated["pagination"]["total_count"]) == (count, count)
    for field in ("date_from", "date_to"):
        for wrong in ("2026-01-31T12:00:00", "yesterday", "0001-01-01T00:00:00Z"):
            refused = hub.program.get(f"{LETTERS}?{field}={wrong}")
            assert (refused.status, refused.json["errors"][0]["field"]) == (422, field), wrong


@fact("POST …/dead-letter-queue/{id}/retry")
def test_a_dead_letter_is_retried_with_its_count_at_zero(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    again = act(hub, f"{LETTERS}/{letter['id']}/retry?wait_seconds=0")
    entry = again.json["entry"]
    assert (again.status, again.json["message"], entry["status"], entry["in_dlq"]) == (202, None, "pending", False)
    assert (entry["retry_count"], entry["error_message"]) == (0, letter["error_message"])
    assert [one["id"] for one in listed(hub, QUEUE)] == [letter["id"]] and listed(hub, LETTERS) == []
    assert act(hub, f"{LETTERS}/{letter['id']}/retry").status == 409


@fact("the retry of a dead letter says its outcome, Retry successful. Event removed from queue.")
def test_the_retry_of_a_dead_letter_says_what_became_of_it(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    receiver.status = 200
    done = act(hub, f"{LETTERS}/{letter['id']}/retry?wait_seconds=30")
    assert (done.status, done.json["message"]) == (200, "Retry successful. Event removed from queue.")
    assert (done.json["entry"]["status"], listed(hub, LETTERS)) == ("succeeded", [])


@fact("POST …/dead-letter-queue/{id}/resolve")
def test_a_dead_letter_is_resolved(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    done = act(hub, f"{LETTERS}/{letter['id']}/resolve?reason=posted%20by%20hand")
    assert (done.status, done.json["status"], done.json["in_dlq"]) == (200, "succeeded", False)
    assert listed(hub, LETTERS) == []
    assert hub.program.get("/v1/audit?action=resolve&limit=1").json["audit"][0]["reason"] == "posted by hand"


@fact("DELETE …/dead-letter-queue/{id}", "Entry deleted from DLQ.")
def test_a_dead_letter_is_deleted_and_its_log_is_kept(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    done = act(hub, f"{LETTERS}/{letter['id']}", method="DELETE")
    assert (done.status, done.json) == (200, {"message": "Entry deleted from DLQ."})
    assert listed(hub, LETTERS) == []
    assert len(hub.program.get(f"{API}/logs/{letter['log_id']}").json["attempts"]) == 1
    assert act(hub, f"{LETTERS}/{letter['id']}", method="DELETE").status == 404


@fact("the retry queue is next first, and filtered by status and type")
def test_the_retry_queue_is_next_first_and_filtered(hub: Served, receiver: Receiver) -> None:
    later, sooner = (system(hub, receiver, {"delays": [pause], "jitter": 0}) for pause in (600, 300))
    ids = [failing(hub, receiver, kind)["id"] for kind in (later, sooner)]
    assert [one["id"] for one in listed(hub, QUEUE)] == ids[::-1]
    assert [one["id"] for one in listed(hub, QUEUE, event_type=later)] == ids[:1]
    assert [one["id"] for one in listed(hub, QUEUE, status="pending")] == ids[::-1]
    assert listed(hub, QUEUE, status="in_progress") == []
    assert hub.program.get(f"{QUEUE}?status=lost").status == 422


# -- the service object ----------------------------------------------------------------------------------------------------


@fact(
    "one service object: add, process, manual retry, bulk retry (succeeded, failed), skip to dead letters, delete,"
    " list both queues"
)
def test_one_object_does_everything_in_python(hub: Served, receiver: Receiver) -> None:
    async def all_of_it() -> None:
        async with AsyncClient(hub.program.url, hub.key("operator")) as client:
            queues = IntegrationQueues(client)
            receiver.status = 503
            ids = [(await queues.add("stock.counted", {"count": n}))[0] for n in range(3)]
            while len((await queues.retry_queue(status="pending")).entries) < 3:
                await asyncio.sleep(0.05)
            assert await queues.process() == 0, "none of them is due"
            skipped = await queues.skip(ids[0])
            assert skipped["in_dlq"] and (await queues.dead_letter_queue()).entries == [skipped]
            receiver.status = 200
            assert (await queues.manual_retry(ids[1])).message == "Retry successful. Event removed from queue."
            bulk = await queues.bulk_retry([ids[2]])
            assert (bulk.succeeded, bulk.failed) == (1, 0)
            await queues.retry_dead_letter(ids[0], wait_seconds=0)
            while (await queues.entry(ids[0]))["status"] != "succeeded":
                await asyncio.sleep(0.1)
            assert (await queues.retry_queue()).entries == []
            receiver.status = 503
            (last,) = await queues.add("stock.counted", {})
            while not (await queues.retry_queue(status="pending")).entries:
                await asyncio.sleep(0.05)
            await queues.skip(last)
            assert await queues.delete(last) == "Entry deleted from DLQ."

    asyncio.run(all_of_it())


@fact("process: what is due is retried")
def test_process_waits_until_what_is_due_has_been_retried(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver, system(hub, receiver, {"delays": [0.5, 600], "jitter": 0}))

    async def process() -> int:
        async with AsyncClient(hub.program.url, hub.key("operator")) as client:
            receiver.hold.clear()
            asyncio.get_running_loop().call_later(2, receiver.hold.set)
            await asyncio.sleep(1)
            return await IntegrationQueues(client).process()

    assert asyncio.run(process()) == 1
    assert hub.program.get(f"{QUEUE}/{entry['id']}").json["retry_count"] == 1


# -- the screens -----------------------------------------------------------------------------------------------------------


def on_screen(hub: Served, *steps: tuple[str, str, Json], role: str = "operator") -> list[Shown]:
    """Sign in, and take these steps: a method, a path and the fields of a form. Returns each page."""

    async def walk() -> list[Shown]:
        console = await Console(hub.program.url).sign_in(hub.key(role))
        shown = []
        for method, path, fields in steps:
            shown.append(await console.get(path) if method == "GET" else await console.post(path, fields))
        return shown

    return asyncio.run(walk())


def told(hub: Served, watch: str) -> str:
    """The outcome of an action on the screen, once it is known."""

    def outcome() -> str | None:
        (shown,) = on_screen(hub, ("GET", f"/console/outcome?{watch}", {}))
        return None if shown.said is None or shown.said.startswith("Retrying") else shown.said

    return wait_for(outcome)


@fact(
    "/integrations/logs/retry-queue leads to the screen",
    "columns: Event Type, External System, Error, Retry Count 1 / 3, Next Retry At",
    "buttons: Retry Now, Skip, View Log",
)
def test_the_screen_of_the_retry_queue(hub: Served, receiver: Receiver) -> None:
    kind = system(hub, receiver)
    entry = failing(hub, receiver, kind)
    act(hub, f"{QUEUE}/{entry['id']}/retry")
    (shown,) = on_screen(hub, ("GET", f"{SCREENS}/retry-queue?event_type={kind}", {}))
    assert (shown.status, shown.path) == (200, f"/console/retry-queue?event_type={kind}")
    assert columns(shown)[:5] == ["Event Type", "External System", "Error", "Retry Count", "Next Retry At"]
    row = re.search(rf"{kind} .* SERVICE_UNAVAILABLE .* 1 / 3 .*", shown.text)
    assert row and re.search(r"Retry Now View Log Skip", row[0])
    for name in ("status", "event_type"):
        assert f'name="{name}"' in shown.source, "a filter"
    looked = on_screen(hub, ("GET", f"{SCREENS}/retry-queue", {}), role="viewer")[0]
    assert "View Log" in looked.text and "Retry Now" not in looked.text


@fact(
    "/integrations/logs/dead-letter-queue leads to the screen",
    "Created At is the first failure",
    "buttons: Manual Retry, Delete, Mark Resolved",
)
def test_the_screen_of_the_dead_letters(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    (shown,) = on_screen(hub, ("GET", f"{SCREENS}/dead-letter-queue", {}))
    assert (shown.status, shown.path) == (200, "/console/dead-letters/letters")
    assert columns(shown)[:5] == ["Event Type", "External System", "Error", "Retry Count", "Created At"]
    row = shown.source[shown.source.index(f"row-{letter['id']}") :]
    assert row.index(letter["created_at"]) < row.index(letter["updated_at"]), "the first failure, then the skip"
    assert "The ERP is not available (503)." in shown.text, "the original error"
    for name in ("Manual Retry", "Mark Resolved", "Delete", "View Log"):
        assert f">{name}<" in row
    for name in ("event_type", "died_from", "died_before"):
        assert f'name="{name}"' in shown.source, "a filter"
    assert "1 dead letter " in shown.text, "the count"


def wants_a_reason(asked: Shown) -> bool:
    (field,) = re.findall(r'<input[^>]* name="reason"[^>]*>', asked.source)
    return " required" in field


def columns(shown: Shown) -> list[str]:
    return [one for one in re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', shown.source) if one]


@fact("on the screen: Skip asks once Skip retry and move to Dead Letter Queue? and wants no typed reason")
def test_skip_asks_once_on_the_screen(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    path, back = "/console/retry-queue/skip", "/console/retry-queue"
    asked, done = on_screen(
        hub, ("GET", f"{path}?id={entry['id']}&back={back}", {}), ("POST", path, {"id": entry["id"], "back": back})
    )
    assert "Skip retry and move to Dead Letter Queue?" in asked.text and not wants_a_reason(asked)
    assert (done.status, done.path) == (200, back)
    assert [one["id"] for one in listed(hub, LETTERS)] == [entry["id"]]


@fact("on the screen: Delete asks Permanently delete this entry? and then says Entry deleted from DLQ.")
def test_delete_asks_once_on_the_screen(hub: Served, receiver: Receiver) -> None:
    letter = dead(hub, receiver)
    path, back = "/console/dead-letters/delete", "/console/dead-letters/letters"
    asked, done = on_screen(
        hub, ("GET", f"{path}?id={letter['id']}&back={back}", {}), ("POST", path, {"id": letter["id"], "back": back})
    )
    assert "Permanently delete this entry?" in asked.text and not wants_a_reason(asked)
    assert (done.status, done.said) == (200, "Entry deleted from DLQ.")
    assert listed(hub, LETTERS) == []


@fact("on the screen: the outcome of a retry is told when it is known, Retry successful. Event removed from queue.")
def test_a_retry_says_its_outcome_on_the_screen(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    receiver.status = 200
    back = "/console/retry-queue"
    _, started = on_screen(hub, ("GET", back, {}), ("POST", f"{back}/{entry['id']}/retry", {"back": back}))
    assert started.said in ("Retrying…", "Retry successful. Event removed from queue.")
    said = told(hub, f"delivery={entry['id']}&after=1&of=queue")
    assert said == "Retry successful. Event removed from queue."


@fact("on the screen: 0/2 succeeded, 0/2 failed while a bulk retry runs, and Bulk retry complete. … at its end")
def test_a_bulk_retry_says_its_progress_and_outcome_on_the_screen(hub: Served, receiver: Receiver) -> None:
    entries = [failing(hub, receiver) for _ in range(2)]
    receiver.status = 200
    receiver.hold.clear()
    ids = [one["id"] for one in entries]
    _, started = on_screen(
        hub,
        ("GET", "/console/retry-queue", {}),
        ("POST", "/console/retry-queue/retry", {"id": ids, "back": "/console"}),
    )
    watch = f"bulk={started.path.rsplit('/', 1)[1]}"
    assert told(hub, watch) == "0/2 succeeded, 0/2 failed"
    receiver.hold.set()
    wait_for(lambda: told(hub, watch) == "Bulk retry complete. 2 succeeded, 0 failed.")


# -- who -----------------------------------------------------------------------------------------------------------------------


@fact("ADMIN and IT_MANAGER act, others look", "the audit names the person")
def test_administrators_act_others_look_and_the_audit_names_the_person(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    viewer = hub.key("viewer")
    assert [one["id"] for one in listed(hub, QUEUE, viewer)] == [entry["id"]]
    assert listed(hub, LETTERS, viewer) == []
    for path, method in (
        (f"{QUEUE}/{entry['id']}/retry", "POST"),
        (f"{QUEUE}/{entry['id']}/skip", "POST"),
        (f"{LETTERS}/{entry['id']}/retry", "POST"),
        (f"{LETTERS}/{entry['id']}/resolve", "POST"),
        (f"{LETTERS}/{entry['id']}", "DELETE"),
    ):
        assert act(hub, path, key=viewer, method=method).status == 403, path
    assert act(hub, f"{QUEUE}/bulk-retry", {"ids": [entry["id"]]}, key=viewer).status == 403
    assert hub.program.get(QUEUE, key=None).status == 401
    refused = act(hub, f"{QUEUE}/{entry['id']}/retry", key=viewer)
    assert refused.json["detail"] == "only ADMIN and IT_MANAGER may do that"
    user = hub.program.post(f"{API}/keys", {"name": "Ada", "role": "USER"}).json["key"]
    assert hub.program.get(f"{API}/me", key=user).json == {"name": "Ada", "role": "USER"}
    assert act(hub, f"{API}/keys", {"name": "Eve", "role": "ADMIN"}, key=user).status == 403
    assert hub.program.post(f"{API}/keys", {"name": "Eve", "role": "admin"}).status == 422
    for role in ("ADMIN", "IT_MANAGER"):
        made = hub.program.post(f"{API}/keys", {"name": f"Grace, {role}", "role": role})
        assert (made.status, made.json["role"]) == (201, role)
        assert hub.program.get(f"{API}/me", key=made.json["key"]).json == {"name": f"Grace, {role}", "role": role}
        assert act(hub, f"{QUEUE}/{entry['id']}/retry", key=made.json["key"]).status == 200
        (line,) = hub.program.get("/v1/audit?action=retry&limit=1").json["audit"]
        assert (line["actor"], line["subjects"]) == (f"Grace, {role}", [entry["id"]])


@fact("organizations are kept apart")
def test_organizations_are_kept_apart(hub: Served, receiver: Receiver) -> None:
    entry, letter = failing(hub, receiver, system(hub, receiver)), dead(hub, receiver)
    other = hub.program.post("/v1/orgs", {"name": uuid4().hex})
    assert other.status == 201, other.body
    key = other.json["admin_key"]["key"]
    assert listed(hub, QUEUE, key) == listed(hub, LETTERS, key) == []
    for path, method in (
        (f"{QUEUE}/{entry['id']}", "GET"),
        (f"{QUEUE}/{entry['id']}/retry", "POST"),
        (f"{LETTERS}/{letter['id']}", "DELETE"),
        (f"{API}/logs/{entry['log_id']}", "GET"),
    ):
        assert act(hub, path, key=key, method=method).status == 404, path


# -- log and alert -------------------------------------------------------------------------------------------------------------


@fact("a retry that succeeds turns the log entry to success, with the new response and Succeeded on retry attempt 2")
def test_a_retry_that_succeeds_turns_the_log_entry_to_success(hub: Served, receiver: Receiver) -> None:
    entry = failing(hub, receiver)
    place = f"{API}/logs/{entry['log_id']}"
    log = hub.program.get(place).json
    assert (log["status"], log["error_message"]) == ("pending", "The ERP is not available (503).")
    assert (log["event_type"], log["external_system"]) == ("stock.counted", "erp")
    act(hub, f"{QUEUE}/{entry['id']}/retry")
    receiver.status = 200
    act(hub, f"{QUEUE}/{entry['id']}/retry")
    log = hub.program.get(place).json
    assert (log["status"], log["message"], log["error_message"]) == ("success", "Succeeded on retry attempt 2", None)
    assert "accepted with status 200" in log["response"]
    assert len(log["attempts"]) == 3
    (newest, *_) = hub.program.get(f"{API}/logs?limit=1").json["entries"]
    assert (newest["log_id"], newest["status"]) == (entry["log_id"], "success")


@fact("alert: more than 50 dead letters")
def test_an_alert_is_raised_for_more_than_50_dead_letters(hub: Served) -> None:
    rules = hub.program.get("/v1/alert-rules").json["alert_rules"]
    (rule,) = [one for one in rules if one["rule"] == "dead_letters"]
    assert (rule["threshold"], rule["enabled"]) == (50, True)


# -- SQL -----------------------------------------------------------------------------------------------------------------------


@fact("SQL: a view integration_retry_queue with the columns of an entry, where in_dlq implies failed")
def test_people_see_entries_with_sql(hub: Served, receiver: Receiver) -> None:
    waiting, letter = failing(hub, receiver, system(hub, receiver)), dead(hub, receiver)
    act(hub, f"{QUEUE}/{waiting['id']}/retry")
    for entry in (hub.program.get(f"{QUEUE}/{one['id']}").json for one in (waiting, letter)):
        (row,) = hub.rows(f"SELECT * FROM integration_retry_queue WHERE id = '{entry['id']}'")
        assert list(row) == FIELDS
        assert {name: plain(value) for name, value in row.items()} == entry | {"in_dlq": plain(row["in_dlq"])}
        assert bool(row["in_dlq"]) == entry["in_dlq"]
    assert hub.rows("SELECT id FROM integration_retry_queue WHERE in_dlq AND status <> 'failed'") == []
    assert hub.rows("SELECT id FROM integration_retry_queue WHERE in_dlq AND status = 'failed'") != []


def plain(value: object) -> object:
    """A value of a row as it is in JSON."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return str(value) if isinstance(value, UUID) else value


@fact("SQL on PostgreSQL: calculate_next_retry(integer, text) returns the time, or null for manual")
def test_the_function_calculates_the_next_retry(hub: Served) -> None:
    if hub.database_url.startswith("sqlite"):
        assert hub.rows("SELECT name FROM sqlite_master WHERE name LIKE 'calculate%'") == [], "SQLite has no functions"
        return
    calls = "calculate_next_retry({}, '{}') - now() AS pause"
    for policy, pauses in (("exponential", (5, 30, 300)), ("immediate", (5, 5, 5)), ("manual", (None,) * 3)):
        found = [hub.rows(f"SELECT {calls.format(count, policy)}")[0]["pause"] for count in range(3)]
        assert found == [None if pause is None else timedelta(seconds=pause) for pause in pauses]
