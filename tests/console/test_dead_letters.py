"""R7.4: the dead letters over HTTP, as a user without scripts sees them."""

from __future__ import annotations

import csv
import io
import json
import re
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import to_iso
from doorstep.model.bulk import Bulk, BulkFilter, BulkKind
from doorstep.model.delivery import DeliveryState
from doorstep.model.listing import DeadLetterFilter
from tests.console.dying import LETTERS, PAYLOAD, die, endpoint_at, letters, state_of, three_causes
from tests.console.endpoint_pages import open_circuit
from tests.console.visiting import Console, Shown
from tests.support.api import Api
from tests.support.scene import Scene, until

ROWS = f"{LETTERS}/letters"
NOTHING = "No failed events. All integrations healthy."


def rows_of(shown: Shown) -> list[str]:
    """The visible text of each table row."""
    found = re.findall(r'<tr id="row-.*?</tr>', shown.source, re.DOTALL)
    return [shown._replace(source=one).text for one in found]


async def bulks(scene: Scene) -> list[Bulk]:
    return list((await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items)


async def cause_of(scene: Scene, path: str) -> str:
    endpoint = await endpoint_at(scene, path)
    (letter, *_) = await letters(scene, DeadLetterFilter(endpoint_id=endpoint.endpoint_id))
    return f"{letter.cause:016x}"


# -- contents ------------------------------------------------------------------------------------------------


async def test_142_dead_letters_read_as_three_causes(scene: Scene, console: Console) -> None:
    await three_causes(scene)
    shown = await console.get(LETTERS)
    rows = rows_of(shown)
    assert "142 dead letters, 3 causes" in shown.text
    assert {row.split(" ", 2)[0]: row.split(" ", 2)[1] for row in rows} == {
        "100": "AUTH_FAILED", "40": "NOT_FOUND", "2": "INVALID_FORMAT"
    }  # fmt: skip
    assert "100 dead letters in the last 24 hours, 100 in the current hour" in shown.source
    assert re.search(r'href="/console/events/[0-9a-f-]{36}#delivery-[0-9a-f-]{36}">order.paid', shown.source)
    assert rows[0].startswith("2 "), "the most recent death comes first"


async def test_without_dead_letters_all_integrations_are_healthy(console: Console) -> None:
    for path in (LETTERS, ROWS):
        shown = await console.get(path)
        assert NOTHING in shown.text
        assert "Retry all" not in shown.text


async def test_while_a_delivery_waits_for_its_retry_nobody_is_told_that_all_is_healthy(
    scene: Scene, console: Console
) -> None:
    await open_circuit(scene)
    for path in (LETTERS, ROWS):
        shown = (await console.get(path)).text
        assert "No dead letters." in shown and NOTHING not in shown
        shown = (await console.get(f"{path}?event_type=order.*")).text
        assert "No dead letters for this filter." in shown and NOTHING not in shown


async def test_a_cause_opens_to_its_letters_and_they_are_told_one_by_one(scene: Scene, console: Console) -> None:
    await die(scene, 3, "/crm")
    await die(scene, 1, "/shop", "user.created")
    shown = await console.get(f"{LETTERS}?cause={await cause_of(scene, '/crm')}")
    assert len(rows_of(shown)) == 3
    assert "AUTH_FAILED at crm" in shown.text
    shown = await console.get(ROWS)
    assert len(rows_of(shown)) == 4
    assert re.match(
        r"user.created [0-9a-f]{8} shop NOT_FOUND .* 0 / 7 (now|.* ago) (now|.* ago) Retry", rows_of(shown)[0]
    )


async def test_filters_are_by_type_endpoint_cause_time_and_status(scene: Scene, console: Console) -> None:
    await die(scene, 2, "/crm")
    scene.leap(600)
    between = to_iso(scene.clock.now())
    scene.leap(600)
    await die(scene, 1, "/shop", "user.created")
    shop = (await endpoint_at(scene, "/shop")).endpoint_id
    for asked, count in (
        ({"event_type": "user.*"}, 1),
        ({"event_type": "order.paid"}, 2),
        ({"endpoint_id": shop}, 1),
        ({"cause": await cause_of(scene, "/crm")}, 2),
        ({"died_from": between}, 1),
        ({"died_before": between}, 2),
        ({"died_from": between, "died_before": between}, 0),
        ({"status": "archived"}, 0),
    ):
        shown = await console.get(f"{ROWS}?{urlencode(asked)}")
        assert len(rows_of(shown)) == count, asked
        assert ("No dead letters for this filter." in shown.text) is (count == 0)
        grouped = rows_of(await console.get(f"{LETTERS}?{urlencode(asked)}"))
        assert len(grouped) == (count if "cause" in asked else min(count, 1)), asked


async def test_what_nobody_touched_for_a_week_is_found_among_the_archived(scene: Scene, api: Api) -> None:
    (letter,) = await die(scene)
    scene.leap(8 * 86_400)
    console = await Console(api.url).sign_in(api.key)
    assert NOTHING in (await console.get(LETTERS)).text
    assert "1 dead letter, 1 cause" in (await console.get(f"{LETTERS}?status=archived")).text
    assert len(rows_of(await console.get(f"{ROWS}?status=archived"))) == 1
    await console.post(f"{LETTERS}/resolve", all="yes", status="archived", reason="old")
    await scene.until_state(letter, DeliveryState.RESOLVED)


async def test_a_filter_that_cannot_be_used_is_told_and_can_be_cleared(
    console: Console, subtests: pytest.Subtests
) -> None:
    for asked in ("cause=x", "status=gone", "died_from=soon", "endpoint_id=1", "event_type=%00"):
        with subtests.test(asked=asked):
            for path in (LETTERS, ROWS, f"{LETTERS}/export"):
                shown = await console.get(f"{path}?{asked}")
                assert shown.status == 422
                assert "Invalid filter" in shown.text


async def test_a_long_list_has_pages(scene: Scene, console: Console) -> None:
    await die(scene, 60)
    first = await console.get(f"{ROWS}?event_type=order.paid")
    onward = re.search(r'href="([^"]*)" rel="next"', first.source)
    assert onward
    second = await console.get(onward[1].replace("&amp;", "&"))
    assert [len(rows_of(one)) for one in (first, second)] == [50, 10]


# -- actions -------------------------------------------------------------------------------------------------


async def test_a_cause_is_retried_with_a_canary_at_a_rate_and_its_progress_is_seen(
    scene: Scene, console: Console
) -> None:
    made = await die(scene, 3, "/crm")
    (other,) = await die(scene, 1, "/shop")
    cause = await cause_of(scene, "/crm")
    asked = await console.get(f"{LETTERS}/retry?all=yes&cause={cause}&back={LETTERS}")
    assert "Retry 3 deliveries?" in asked.text
    assert "Canary: one of each cause first" in asked.text
    scene.receiver.says(200)
    await console.post(
        f"{LETTERS}/retry", all="yes", cause=cause, rate="50", canary="yes", reason="they fixed it", back=LETTERS
    )
    (bulk,) = await bulks(scene)
    assert (bulk.kind, bulk.total, bulk.canary, bulk.rate_per_second) == (BulkKind.RETRY, 3, True, 50)
    assert bulk.reason == "they fixed it"
    assert bulk.selection.letters is not None
    assert replace(bulk.selection.letters, died_before=None) == DeadLetterFilter(cause=int(cause, 16))
    assert "succeeded" in (await console.get(LETTERS)).text
    await _revived(scene, console)
    assert [await state_of(scene, one) for one in made] == [DeliveryState.DELIVERED] * 3
    assert await state_of(scene, other) is DeliveryState.DEAD


async def _revived(scene: Scene, console: Console) -> None:
    """Wait until the progress strip reports that all three succeeded; the clock skips the delays before each retry."""

    async def told() -> bool:
        scene.leap(1)
        return "3/3 succeeded, 0 failed" in (await console.get(LETTERS)).text

    await until(told, "3/3 succeeded")


async def test_one_letter_is_retried_at_once(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene)
    await console.get(ROWS)
    shown = await console.post(f"{LETTERS}/{letter.delivery_id}/retry", back=ROWS)
    assert shown.said == "Retrying…"
    assert shown.path == ROWS
    assert "No dead letters." in shown.text
    scene.receiver.says(200)
    scene.leap(6)
    await scene.until_state(letter, DeliveryState.DELIVERED)


@pytest.mark.parametrize(("act", "state"), [("resolve", DeliveryState.RESOLVED), ("delete", DeliveryState.DEAD)])
async def test_one_letter_is_resolved_or_deleted_with_a_reason(
    scene: Scene, console: Console, act: str, state: DeliveryState
) -> None:
    letter, other = await die(scene, 2)
    asked = await console.get(f"{LETTERS}/{act}?id={letter.delivery_id}&back={LETTERS}")
    assert {"resolve": "Resolve 1 delivery?", "delete": "Permanently delete this entry?"}[act] in asked.text
    shown = await console.post(f"{LETTERS}/{act}", id=letter.delivery_id, reason="by hand", back=LETTERS)
    assert shown.said == {"resolve": "Marked as resolved.", "delete": "Entry deleted."}[act]
    assert await state_of(scene, letter) is state
    assert [one.delivery_id for one in await letters(scene)] == [other.delivery_id]
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, act, None, 10)).items
    assert (line.reason, line.subjects) == ("by hand", (str(letter.delivery_id),))


async def test_all_that_match_are_deleted_and_nothing_else(scene: Scene, console: Console) -> None:
    await die(scene, 3, "/crm")
    (kept,) = await die(scene, 1, "/shop", "user.created")
    await console.get(ROWS)
    await console.post(f"{LETTERS}/delete", all="yes", event_type="order.*", reason="obsolete")

    async def deleted() -> bool:
        return [one.delivery_id for one in await letters(scene)] == [kept.delivery_id]

    await until(deleted, "three of four deleted")


async def test_nothing_ticked_is_not_everything(scene: Scene, console: Console) -> None:
    await die(scene, 2)
    await console.get(ROWS)
    shown = await console.post(f"{LETTERS}/delete", reason="oops", back=LETTERS)
    assert shown.said == "id: no rows are selected; select some rows, or choose all that match"
    assert len(await letters(scene)) == 2
    assert await bulks(scene) == []


# -- export --------------------------------------------------------------------------------------------------


async def test_everything_that_matches_is_exported_as_json_lines(scene: Scene, console: Console) -> None:
    made = await die(scene, 250)
    await die(scene, 1, "/shop", "user.created")
    answer = await console.raw("GET", f"{LETTERS}/export?format=jsonl&event_type=order.paid")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert len({line["delivery_id"] for line in lines}) == len(lines) == 250
    assert {line["endpoint_name"] for line in lines} == {"crm"}
    assert (lines[0]["error"], lines[0]["state"], lines[0]["cause"]) == ("AUTH_FAILED", "dead", f"{made[0].cause:016x}")
    assert lines[0]["died_at"] == to_iso(made[0].settled_at or 0)
    assert "payload" not in lines[0]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert re.fullmatch(
        r'attachment; filename="dead-letters-[0-9-]+T[0-9]+\.jsonl"', answer.headers["content-disposition"]
    )


async def test_an_export_with_payloads_has_them_as_they_were_sent(scene: Scene, console: Console) -> None:
    await die(scene, 45)
    await die(scene, 1, payload=b'{\n "n": 1e400\n}')
    answer = await console.raw("GET", f"{LETTERS}/export?format=jsonl&payload=yes")
    lines = answer.body.splitlines()
    assert len(lines) == 46
    assert lines[0].endswith(b'"payload":{"n":1e400}}')
    assert all(line.endswith(b'"payload":' + PAYLOAD + b"}") for line in lines[1:])


async def test_a_spreadsheet_takes_nothing_for_a_formula(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint("/crm", name="=cmd|' /C calc'!A0")
    await die(scene)
    await scene.send_to(endpoint)
    await until(lambda: _two(scene))
    answer = await console.raw("GET", f"{LETTERS}/export?format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
    assert {row["endpoint_name"] for row in rows} == {"crm", "'=cmd|' /C calc'!A0"}
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def _two(scene: Scene) -> bool:
    return len(await letters(scene)) == 2


async def test_an_export_of_nothing_is_an_empty_file(console: Console) -> None:
    assert (await console.raw("GET", f"{LETTERS}/export?format=jsonl")).body == b""
    assert (await console.raw("GET", f"{LETTERS}/export?format=csv")).body.startswith(b"delivery_id,event_id,")
    assert (await console.get(f"{LETTERS}/export?format=xls")).status == 422


# -- permissions ---------------------------------------------------------------------------------------------


async def test_a_viewer_sees_everything_and_no_action(scene: Scene, viewer: Console) -> None:
    (letter,) = await die(scene)
    cause = await cause_of(scene, "/crm")
    for path in (LETTERS, f"{LETTERS}?cause={cause}", ROWS):
        shown = await viewer.get(path)
        assert len(rows_of(shown)) == 1
        assert not re.search(r"<button[^>]*formaction|data-dialog|data-row|Retry all|>Edit<", shown.source)
    assert (await viewer.raw("GET", f"{LETTERS}/export")).status == 200
    for act in ("retry", "resolve", "delete"):
        assert (await viewer.get(f"{LETTERS}/{act}?id={letter.delivery_id}")).status == 403
        assert (await viewer.post(f"{LETTERS}/{act}", id=letter.delivery_id)).status == 403
    assert (await viewer.get(f"{LETTERS}/{letter.delivery_id}/edit")).status == 403
    assert (await viewer.post(f"{LETTERS}/{letter.delivery_id}/edit", payload="{}")).status == 403
    assert (await viewer.post(f"{LETTERS}/{letter.delivery_id}/retry")).status == 403
    assert await state_of(scene, letter) is DeliveryState.DEAD


async def test_what_is_unknown_is_not_found(console: Console) -> None:
    for name in ("00000000-0000-7000-8000-00000000abcd", "nonsense"):
        assert (await console.get(f"{LETTERS}/{name}/edit")).status == 404
