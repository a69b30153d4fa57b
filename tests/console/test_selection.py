"""The choice "all that match" means the items that matched the filter, and only it, when the question was asked."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import SECOND, Instant, to_iso
from doorstep.console import confirm as selection
from doorstep.console.confirm import Chosen, of_letters, of_queue
from doorstep.console.fields import Fields
from doorstep.errors import InvalidInput
from doorstep.model.bulk import Bulk, BulkFilter
from doorstep.model.listing import DeadLetterFilter, RetryQueueFilter
from tests.console.dying import LETTERS, die, letters
from tests.console.markup import elements
from tests.console.queueing import QUEUE, failing
from tests.console.visiting import Console, Shown
from tests.support.scene import Scene, until

NOW: Instant = 1_800_000_000 * SECOND
LATER = NOW + 60 * SECOND
STRAY = {"all": "yes", "id": "0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b", "back": "/console", "range": "7d", "cursor": ""}


def fields(**values: object) -> Fields:
    return Fields([(name, str(value)) for name, value in values.items()])


def hidden(shown: Shown) -> dict[str, object]:
    """The hidden fields that a browser submits with the form around a list, or with the form of a question."""
    found = elements(shown.source)
    form = next(one.form for one in found if one.tag == "form" and not _is_other(one.attributes))
    return {
        one.attributes["name"]: html.unescape(one.attributes["value"])
        for one in found
        if one.form == form and one.attributes.get("type") == "hidden"
    }


def _is_other(attributes: dict[str, str]) -> bool:
    """Whether this is a form of every page, or the filter of a list."""
    return attributes.get("action") in ("/console/search", "/console/sign-out") or "data-filter" in attributes


async def bulks(scene: Scene) -> list[Bulk]:
    return list((await scene.doorstep.components.store.page(DEFAULT_ORG, BulkFilter(), None, 10)).items)


# -- the time of the question ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "expected"), [(None, NOW), ("1h", NOW - 3_600 * SECOND)])
def test_an_age_is_counted_from_the_question_and_not_from_the_answer(age: str | None, expected: Instant) -> None:
    asked = of_queue(fields(all="yes", event_type="order.*", **({} if age is None else {"age": age})), NOW)
    answered = of_queue(asked.fields, LATER)
    assert answered == (asked.selection, answered.fields)
    assert asked.selection.queue == RetryQueueFilter(event_type="order.*", failed_before=expected)


@pytest.mark.parametrize(("given", "expected"), [(None, NOW), (NOW - SECOND, NOW - SECOND), (LATER, NOW)])
def test_letters_that_die_after_the_question_are_not_meant(given: Instant | None, expected: Instant) -> None:
    asked = of_letters(fields(all="yes", **({} if given is None else {"died_before": to_iso(given)})), NOW)
    assert asked.selection.letters == of_letters(asked.fields, LATER).selection.letters
    assert asked.selection.letters == DeadLetterFilter(died_before=expected)


async def test_what_dies_between_the_question_and_the_answer_is_left_alone(scene: Scene, console: Console) -> None:
    await die(scene, 2)
    question = await console.get(f"{LETTERS}/delete?all=yes")
    assert "Delete 2 deliveries?" in question.text
    (late,) = await die(scene, 1)
    await console.post(f"{LETTERS}/delete", hidden(question) | {"reason": "obsolete"})
    (bulk,) = await bulks(scene)
    assert bulk.total == 2

    async def finished() -> bool:
        return (await bulks(scene))[0].finished_at is not None

    await until(finished, "the end of the operation")
    assert [one.delivery_id for one in await letters(scene)] == [late.delivery_id]


# -- only the filter counts -----------------------------------------------------------------------------------------


def test_all_that_match_says_nothing_but_the_filter_again() -> None:
    chosen = of_letters(fields(**STRAY, cause="0" * 16, event_type="a"), NOW)
    assert dict(chosen.fields.pairs).keys() == {"all", "cause", "event_type", "died_before"}


def test_rows_that_are_ticked_say_nothing_but_their_ids_again() -> None:
    ticked = fields(id=STRAY["id"], event_type="a", status="archived", back="/console")
    for chosen in (of_letters(ticked, NOW), of_queue(ticked, NOW)):
        assert isinstance(chosen, Chosen)
        assert chosen.fields.pairs == [("id", STRAY["id"])]


def test_nobody_acts_on_everything_by_leaving_it_out() -> None:
    for choose in (of_letters, of_queue):
        with pytest.raises(InvalidInput, match="no rows are selected"):
            choose(fields(event_type="a"), NOW)


async def test_a_list_passes_on_its_filter_and_nothing_else_that_the_url_holds(
    console: Console, subtests: pytest.Subtests
) -> None:
    for path in (QUEUE, f"{LETTERS}/letters"):
        with subtests.test(path=path):
            shown = await console.get(f"{path}?{urlencode(STRAY | {'event_type': 'order.*'})}")
            assert hidden(shown).keys() == {"event_type", "back"}
            assert hidden(shown)["event_type"] == "order.*"


LISTS = ["retry-queue", "dead-letters", "endpoints", "alerts", "audit", "events", "batches", "settings/organizations"]


async def test_a_filter_can_be_cleared_on_every_list(console: Console, subtests: pytest.Subtests) -> None:
    for path in LISTS:
        with subtests.test(path=path):
            clear = f'<a class="button quiet" href="/console/{path}">Clear</a>'
            assert clear not in (await console.get(f"/console/{path}")).source
            assert clear in (await console.get(f"/console/{path}?name=x")).source


async def test_a_bound_that_the_url_holds_stays_when_the_filter_is_sent_again(console: Console) -> None:
    shown = await console.get(f"{QUEUE}?failed_before=2026-01-31T14:30:05Z")
    assert 'name="failed_before" type="datetime-local" step="any" value="2026-01-31T14:30:05"' in shown.source


async def test_a_choice_of_endpoints_that_has_not_all_of_them_says_so(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.endpoint(name="one")
    await scene.endpoint(name="two")
    assert "only the first" not in (await console.get(QUEUE)).text
    monkeypatch.setattr(selection, "ENDPOINTS_MAX", 1)
    assert "only the first 1" in (await console.get(QUEUE)).text


# -- deliveries in progress -----------------------------------------------------------------------------------------


async def test_what_is_in_progress_is_shown_and_cannot_be_chosen(scene: Scene, console: Console) -> None:
    held = (await failing(scene, 2))[0].delivery_id
    scene.receiver.hold.clear()
    await console.get(QUEUE)
    await console.post(f"{QUEUE}/{held}/retry")
    await scene.until_received(3)
    shown = await console.get(f"{QUEUE}?status=in_progress")
    assert f'id="row-{held}"' in shown.source
    assert 'type="checkbox"' not in shown.source
    assert "that match" not in shown.text
    for act in ("retry", "skip"):
        asked = await console.get(f"{QUEUE}/{act}?all=yes&status=in_progress")
        assert (asked.status, "in progress cannot be acted upon" in asked.text) == (422, True)
        answered = await console.post(f"{QUEUE}/{act}", all="yes", status="in_progress", reason="x", back=QUEUE)
        assert "in progress cannot be acted upon" in (answered.said or "")
    assert await bulks(scene) == []


async def test_a_bulk_operation_on_the_queue_is_told_without_fields_that_say_nothing(
    scene: Scene, console: Console
) -> None:
    await failing(scene, 2)
    await console.get(f"{QUEUE}/retry?all=yes")
    shown = await console.post(f"{QUEUE}/retry", all="yes", status="pending", event_type="order.*")
    assert re.search(r"all waiting deliveries with event type order\.\*, failed before \d", shown.text)
    assert "True" not in shown.text
