"""Batch pages: batches are found by status, shown with the carrier's answer, and resubmitted by users with
permission."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.action import ActionKind
from doorstep.model.batch import Batch, BatchStatus
from doorstep.model.org import Role
from tests.console.carrying import BUSY, REJECTED, Carrier, row_of, submitted
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene

BATCHES = "/console/batches"


@pytest_asyncio.fixture(loop_scope="session")
async def carrier(database_url: str, receiver: Receiver) -> AsyncIterator[Carrier]:
    async with submitted(database_url, receiver) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def scene(carrier: Carrier) -> Scene:
    return carrier.scene


def place(batch: Batch) -> str:
    return f"{BATCHES}/{batch.batch_id}"


async def test_a_list_says_how_each_batch_stands(carrier: Carrier, console: Console) -> None:
    failed = await carrier.failed()
    retried = await carrier.until(await carrier.send(BUSY), BatchStatus.PENDING)
    confirmed = await carrier.until(await carrier.send(), BatchStatus.CONFIRMED)
    shown = await console.get(BATCHES)
    assert "carrier FAILED 1 0 / 3 – BATCH_REJECTED The carrier said no." in row_of(shown, failed.batch_id)
    assert re.search(
        r"PENDING 1 0 / 3 in \d.* SERVICE_UNAVAILABLE The carrier is busy.", row_of(shown, retried.batch_id)
    )
    assert "carrier CONFIRMED 1 0 / 3 – –" in row_of(shown, confirmed.batch_id)


async def test_the_list_is_narrowed_by_status_and_type(carrier: Carrier, console: Console) -> None:
    failed = await carrier.failed()
    confirmed = await carrier.until(await carrier.send(), BatchStatus.CONFIRMED)
    for query, expected in {
        "status=FAILED": [failed],
        "status=CONFIRMED": [confirmed],
        "status=PENDING": [],
        "event_type=sms.*": [failed, confirmed],
        "event_type=mail.*": [],
    }.items():
        shown = await console.get(f"{BATCHES}?{query}")
        assert [one for one in (failed, confirmed) if f"row-{one.batch_id}" in shown.source] == expected, query
        assert expected or "No batches for this filter." in shown.text


async def test_a_filter_that_cannot_be_used_says_so(console: Console, subtests: pytest.Subtests) -> None:
    for query in ("status=failed", "cursor=nonsense"):
        with subtests.test(query=query):
            shown = await console.get(f"{BATCHES}?{query}")
            assert shown.status == 422
            assert query.partition("=")[0] in shown.text


async def test_without_any_batch_it_says_what_one_is(console: Console) -> None:
    assert "No batches. A program declares a batch handler" in (await console.get(BATCHES)).text


async def test_the_carrier_log_has_every_submission_with_the_carriers_own_words(
    carrier: Carrier, console: Console
) -> None:
    batch = await carrier.send(BUSY, REJECTED)
    await carrier.until(batch, BatchStatus.PENDING)
    carrier.scene.leap(400)
    await carrier.until(batch, BatchStatus.FAILED, attempts=2)
    shown = await console.get(place(batch))
    log = shown.text.partition("Carrier log")[2]
    newest_first = (
        r'2 \S+ .*BATCH_REJECTED The carrier said no. R-9 <b>rejected</b> – 1 .* {"code":"B-1","text":"busy"}'
    )
    assert re.search(newest_first, log), log
    assert "SERVICE_UNAVAILABLE The carrier is busy." in log
    assert f'href="/console/events/{batch.batch_id}#payload"' in shown.source
    assert f'href="/console/deliveries/{(await carrier.read(batch.batch_id)).delivery_id}/attempts/2"' in shown.source
    assert "<b>rejected" not in shown.source, "what the carrier said is text"


async def test_a_failed_batch_is_resubmitted_with_a_reason_that_is_audited(carrier: Carrier, console: Console) -> None:
    batch = await carrier.failed()
    asked = await console.get(f"{place(batch)}/resubmit?back={place(batch)}")
    assert "Resubmit the batch sms.batch?" in asked.text
    shown = await console.post(f"{place(batch)}/resubmit", reason="the carrier is back", back=asked.field("back"))
    assert (shown.path, shown.said) == (place(batch), "The batch will be submitted again.")
    seen = await carrier.until(batch, BatchStatus.CONFIRMED, attempts=2)
    assert seen.retry_attempts == 0
    (line,) = (
        await carrier.scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "batch.resubmit", None, 10)
    ).items
    assert line.reason == "the carrier is back"
    assert "Resubmit" not in (await console.get(place(batch))).text


async def test_one_that_is_confirmed_is_not_resubmitted(carrier: Carrier, console: Console) -> None:
    batch = await carrier.until(await carrier.send(), BatchStatus.CONFIRMED)
    assert "Resubmit" not in (await console.get(place(batch))).text
    await console.get(f"{place(batch)}/resubmit")
    shown = await console.post(f"{place(batch)}/resubmit", back=place(batch))
    assert "is CONFIRMED; only FAILED batches can be resubmitted" in (shown.said or "")
    assert len(carrier.given) == 1


async def test_one_that_was_cancelled_offers_no_resubmission(carrier: Carrier, console: Console) -> None:
    batch = await carrier.until(await carrier.send(BUSY), BatchStatus.PENDING)
    assert batch.delivery_id is not None
    await carrier.scene.doorstep.components.deliveries.act_on(ActionKind.CANCEL, DEFAULT_ORG, batch.delivery_id, "ops")
    shown = await console.get(place(batch))
    assert "FAILED" in shown.text and "cancelled" in shown.text
    assert "Resubmit" not in shown.text


async def test_a_viewer_reads_and_resubmits_nothing(carrier: Carrier, viewer: Console) -> None:
    batch = await carrier.failed()
    shown = await viewer.get(place(batch))
    assert shown.status == 200
    assert "Resubmit" not in shown.text
    assert (await viewer.get(f"{place(batch)}/resubmit")).status == 403
    assert (await viewer.post(f"{place(batch)}/resubmit")).status == 403
    assert (await carrier.read(batch.batch_id)).status is BatchStatus.FAILED


async def test_what_is_no_batch_of_this_organization_is_not_found(carrier: Carrier, api: Api, console: Console) -> None:
    batch, event = await carrier.failed(), await carrier.scene.send("order.paid")
    for unknown in (uuid4(), event.event_id, "nonsense"):
        assert (await console.get(f"{BATCHES}/{unknown}")).status == 404
    keyring = carrier.scene.doorstep.components.keys
    caller, _ = await keyring.create(DEFAULT_ORG, "an admin", Role.ADMIN, "test")
    _, _, key = await keyring.create_org("other", caller)
    other = await Console(api.url).sign_in(key)
    assert (await other.get(place(batch))).status == 404
    assert str(batch.batch_id) not in (await other.get(BATCHES)).source
