"""R10.2, R10.3: changes are counted in the transaction that makes them, and the figures agree with the rows."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import asdict, replace

from doorstep.clock import DAY, MILLISECOND, SECOND
from doorstep.errors import StaleRouting
from doorstep.model.action import ActionKind
from doorstep.model.alert import OPERATIONS_ORG
from doorstep.model.attempt import Code
from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Circuit, CircuitState, EndpointState
from doorstep.model.listing import EventDeliveries, FailingEndpoints
from doorstep.model.rollup import HOUR, MINUTE, TREND, Figures, Point, Span, only
from doorstep.stores.store import Retention, Store
from tests.contract.scene import LEASE, SOON, WEEK, Scene
from tests.support.builders import NOW, a_reply, a_submission, an_endpoint, an_org, failure, new_id, refusal, success
from tests.support.recounting import all_events, recount
from tests.support.shortcuts import acknowledge, put, totals

FIRST_MINUTE = Span.MINUTE.start(NOW)


def told(figures: Figures) -> dict[str, int]:
    """The figures that are not 0."""
    return {name: value for name, value in asdict(figures).items() if value}


async def own(scene: Scene) -> dict[str, int]:
    """The non-zero figures of the scene's endpoint."""
    return told((await scene.store.figures(scene.org_id, [scene.endpoint.endpoint_id]))[scene.endpoint.endpoint_id])


async def total(scene: Scene) -> dict[str, int]:
    return told(await totals(scene.store, scene.org_id))


async def check_recount(scene: Scene) -> None:
    """Check the figures of the organization, its endpoints and the whole store against a recount of the rows."""
    counted = await recount(scene.store, scene.org_id, await all_events(scene.store, scene.org_id))
    assert await totals(scene.store, scene.org_id) == counted[None]
    assert await totals(scene.store) == counted[None]
    levels = await scene.store.figures(scene.org_id, [one for one in counted if one is not None])
    assert levels == {owner: figures for owner, figures in counted.items() if owner is not None}


# -- what each figure counts -------------------------------------------------------------------------------


async def test_endpoints_that_deliveries_died_at_are_known_by_the_hour_folded_or_not_and_deleted_ones_too(
    scene: Scene,
) -> None:
    healthy = an_org()
    await put(scene.store, healthy)
    await scene.accept(2)
    first, second = await scene.claim()
    await scene.deliver(first)
    hour = Span.HOUR.start(scene.now)
    assert await scene.store.find(None, FailingEndpoints(since=hour)) == [], "what was delivered did not die"
    await scene.kill(second)
    await scene.add_endpoint()
    for _ in range(2):
        assert await scene.store.find(None, FailingEndpoints(since=hour)) == [
            (scene.org_id, scene.endpoint.endpoint_id)
        ]
        assert await scene.store.find(None, FailingEndpoints(since=hour - 5 * HOUR)) == [
            (scene.org_id, scene.endpoint.endpoint_id)
        ]
        assert await scene.store.find(None, FailingEndpoints(since=hour + HOUR)) == []
        await scene.change_endpoint(state=EndpointState.DELETED)
        while await scene.store.aggregate(scene.now + MINUTE):
            pass


async def test_an_empty_store_has_counted_nothing(store: Store) -> None:
    assert await totals(store) == await totals(store, new_id()) == Figures()
    assert (await store.series(None, [None], Span.MINUTE, 0, NOW))[None] == []


async def test_an_accepted_event_is_created_and_received_and_its_deliveries_are_open(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(2, [scene.endpoint, other])
    assert await total(scene) == {"created": 2, "now_received": 2, "deliveries": 4, "now_open": 4}
    assert await own(scene) == {"deliveries": 2, "now_open": 2}


async def test_an_event_that_was_accepted_before_is_not_counted_again(scene: Scene) -> None:
    submission = a_submission(scene.org_id, [scene.endpoint.endpoint_id], key="k")
    await scene.submit(submission)
    before = await total(scene)
    await scene.submit(submission)
    await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id], key="k"))
    await scene.submit(a_submission(scene.org_id, [], event_id=submission.event.event_id))
    assert await total(scene) == before == {"created": 1, "now_received": 1, "deliveries": 1, "now_open": 1}


async def test_what_was_refused_is_not_counted(scene: Scene) -> None:
    with pytest.raises(StaleRouting):
        await scene.store.accept([a_submission(scene.org_id)], {scene.org_id: 99}, scene.now)
    assert await total(scene) == {}


async def test_a_claim_takes_its_event_from_received_to_queued_once(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(1, [scene.endpoint, other])
    (claim,) = await scene.claim()
    assert (await totals(scene.store, scene.org_id)).now_queued == 1
    await scene.store.release([claim], scene.now)
    await scene.claim()
    figures = await totals(scene.store, scene.org_id)
    assert (figures.now_received, figures.now_queued, figures.now_open) == (0, 1, 2)
    await check_recount(scene)


async def test_a_delivered_one_counts_with_its_time_and_its_retries(scene: Scene) -> None:
    await scene.accept()
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    await scene.deliver(await scene.claim_one())
    assert await own(scene) == {
        "deliveries": 1, "retried": 1, "succeeded": 1, "retries_1": 1, "ttd_12": 1, "ttd_ms": SOON // MILLISECOND,
        "response_2": 2, "response_us": 40 * MILLISECOND,
    }  # fmt: skip
    figures = await totals(scene.store, scene.org_id)
    assert (figures.delivered, figures.now_delivered, figures.now_queued, figures.attempts) == (1, 1, 0, 2)
    await check_recount(scene)


async def test_times_to_delivery_fall_into_the_bucket_whose_bound_they_do_not_exceed(scene: Scene) -> None:
    await scene.accept(3)
    claims = await scene.claim()
    for claim, span in zip(claims, (0, 5 * MILLISECOND, 5 * MILLISECOND + 1), strict=True):
        scene.now = NOW + span
        await scene.deliver(claim)
    assert (await totals(scene.store, scene.org_id)).ttd[:3] == (2, 1, 0)
    await check_recount(scene)


async def test_the_response_time_is_the_duration_of_every_attempt_that_reached_the_receiver(scene: Scene) -> None:
    await scene.accept(4)
    quick, slow, hung, refused = await scene.claim()
    reply = {"started_at": scene.now - 250 * MILLISECOND - 1}
    await scene.settle(
        Settlement.delivered(quick, success(scene.now, started_at=scene.now - 5 * MILLISECOND)),
        Settlement.delivered(slow, success(scene.now, **reply)),
        Settlement.dead(hung, replace(failure(scene.now, Code.TIMEOUT), reply=a_reply(scene.now, **reply))),
        Settlement.dead(refused, refusal(scene.now, Code.CONNECTION)),
    )
    figures = await totals(scene.store, scene.org_id)
    assert {place: count for place, count in enumerate(figures.response) if count} == {0: 1, 6: 2}
    assert figures.response_us == 505 * MILLISECOND + 2
    await check_recount(scene)


async def test_the_time_to_delivery_of_what_was_sent_for_later_begins_then(scene: Scene) -> None:
    later = NOW + DAY
    await scene.accept(deliver_at=later, due_at=later)
    scene.now = later + 7 * MILLISECOND
    await scene.deliver(await scene.claim_one())
    figures = await totals(scene.store, scene.org_id)
    assert (figures.ttd_1, figures.ttd_ms) == (1, 7)
    await check_recount(scene)


async def test_a_time_to_delivery_is_never_negative(scene: Scene) -> None:
    await scene.accept(created_at=NOW + SECOND)
    await scene.deliver(await scene.claim_one())
    figures = await totals(scene.store, scene.org_id)
    assert (figures.ttd_0, figures.ttd_ms) == (1, 0)


async def test_what_an_operator_called_off_did_not_fail(scene: Scene) -> None:
    cancelled, _ = await scene.accept(2)
    (delivery,) = await scene.store.find(scene.org_id, EventDeliveries(event_id=cancelled.event.event_id))
    await scene.act(ActionKind.CANCEL, delivery.delivery_id)
    await check_recount(scene)
    (gone,) = await scene.accept()
    await scene.store.delete_event(scene.org_id, gone.event.event_id, "ops", scene.now)
    figures = await totals(scene.store, scene.org_id)
    assert (figures.failed, figures.dead, figures.now_failed) == (0, 0, 1)


async def test_what_was_called_off_beside_a_dead_letter_leaves_a_failed_event(scene: Scene) -> None:
    other = await scene.add_endpoint()
    (submission,) = await scene.accept(1, [scene.endpoint, other])
    await scene.kill(await scene.claim_one())
    waiting = [
        one.delivery_id
        for one in await scene.store.find(scene.org_id, EventDeliveries(event_id=submission.event.event_id))
    ][1]
    await scene.act(ActionKind.CANCEL, waiting)
    assert (await totals(scene.store, scene.org_id)).failed == 1
    await check_recount(scene)


async def test_a_death_by_a_try_is_a_dead_letter_and_a_failed_event(scene: Scene) -> None:
    await scene.accept()
    await scene.kill(await scene.claim_one())
    assert await total(scene) == {
        "created": 1, "failed": 1, "now_failed": 1, "deliveries": 1, "died": 1, "dead": 1, "now_dead": 1, "retries_0": 1,
        "response_2": 1, "response_us": 20 * MILLISECOND,
    }  # fmt: skip
    await check_recount(scene)


async def test_what_the_address_guard_refused_is_told_apart(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.settle(Settlement.dead(claim, refusal(scene.now, Code.BLOCKED)))
    figures = await totals(scene.store, scene.org_id)
    assert (figures.blocked, figures.died) == (1, 1)
    await check_recount(scene)


async def test_a_late_result_counts_as_late_and_as_nothing_else(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.deliver(claim)
    before = await totals(scene.store, scene.org_id)
    await scene.kill(claim, claim)
    assert told(await totals(scene.store, scene.org_id)) == told(before) | {"late": 2}
    await check_recount(scene)


async def test_a_late_result_counts_even_if_its_delivery_has_been_cleaned_away(scene: Scene) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.deliver(claim)
    await scene.store.clean(Retention(settled_before=scene.now + 1), scene.now, 10)
    await scene.deliver(claim)
    assert (await own(scene))["late"] == 1


# -- operators and retention -------------------------------------------------------------------------------


async def test_every_act_moves_the_levels_with_the_states(scene: Scene) -> None:
    for kind in (ActionKind.SKIP, ActionKind.CANCEL):
        (one,) = await scene.accept()
        await scene.act(kind, one.deliveries[0].delivery_id)
        await check_recount(scene)
    letter = await scene.in_state(DeliveryState.DEAD)
    for kind in (ActionKind.RETRY, ActionKind.SKIP, ActionKind.RESOLVE):
        scene.wait(SECOND)
        await scene.act(kind, letter)
        await check_recount(scene)
    scene.wait(SECOND)
    await scene.act(ActionKind.DELETE, await scene.in_state(DeliveryState.DEAD))
    await scene.act(ActionKind.DELETE, await scene.in_state(DeliveryState.ARCHIVED))
    await check_recount(scene)


async def test_a_second_round_counts_its_own_retries(scene: Scene) -> None:
    await scene.accept(retries_max=9)
    for _ in range(8):
        await scene.fail(await scene.claim_one())
        scene.wait(SOON)
    await scene.kill(claim := await scene.claim_one())
    scene.wait(SECOND)
    await scene.act(ActionKind.RETRY, claim.delivery_id)
    scene.wait(SOON)
    await scene.fail(await scene.claim_one())
    scene.wait(SOON)
    await scene.deliver(await scene.claim_one())
    figures = await totals(scene.store, scene.org_id)
    assert (figures.retries_7, figures.retries_1, figures.retried, figures.failed, figures.delivered) == (1, 1, 9, 1, 1)
    await check_recount(scene)


async def test_what_is_buried_and_what_expires_is_dead(scene: Scene) -> None:
    await scene.accept(3)
    await scene.store.dead_letter_waiting(scene.endpoint.endpoint_id, "GONE", "gone", scene.now, 2)
    await check_recount(scene)
    await scene.accept(expires_at=scene.now + 1)
    scene.wait(SECOND)
    await scene.store.expire("EXPIRED", "too late", 0, scene.now, 10)
    assert (await own(scene))["dead"] == 3
    await check_recount(scene)


async def test_archiving_moves_a_letter_from_one_level_to_the_other(scene: Scene) -> None:
    await scene.in_state(DeliveryState.ARCHIVED)
    figures = await own(scene)
    assert (figures.get("now_dead"), figures["now_archived"], figures["dead"]) == (None, 1, 1)
    await check_recount(scene)


async def test_an_acknowledged_event_of_the_inbox_is_delivered_once(scene: Scene) -> None:
    event = a_submission(scene.org_id)
    await scene.submit(event)
    for _ in range(2):
        await acknowledge(scene.store, scene.org_id, event.event.event_id, scene.now)
    assert await total(scene) == {"created": 1, "delivered": 1, "now_delivered": 1}
    await check_recount(scene)


async def test_what_is_cleaned_away_leaves_the_levels_and_stays_in_the_counts(scene: Scene) -> None:
    await scene.in_state(DeliveryState.DELIVERED)
    await scene.submit(a_submission(scene.org_id, created_at=scene.now))
    await scene.submit(acknowledged := a_submission(scene.org_id))
    await acknowledge(scene.store, scene.org_id, acknowledged.event.event_id, scene.now)
    scene.wait(WEEK)
    await scene.store.clean(Retention(settled_before=scene.now, inbox_before=scene.now), scene.now, 10)
    figures = await total(scene)
    assert (figures["created"], figures["delivered"], figures["succeeded"]) == (3, 2, 1)
    assert not [name for name in figures if name.startswith("now_")]


async def test_a_deleted_event_leaves_once(scene: Scene) -> None:
    await scene.accept()
    await scene.kill(await scene.claim_one())
    await scene.accept()
    for _ in range(2):
        (deleted, *_) = await all_events(scene.store, scene.org_id)
        await scene.store.delete_event(scene.org_id, deleted, "ops", scene.now)
    scene.wait(WEEK)
    await scene.store.clean(Retention(settled_before=scene.now), scene.now, 10)
    figures = await total(scene)
    assert (figures["created"], figures["failed"]) == (2, 1)
    assert not [name for name in figures if name.startswith("now_")]


# -- aggregation -------------------------------------------------------------------------------------------


async def _some_life(scene: Scene) -> None:
    """Create activity in three different minutes, the last of them in the next hour."""
    for span in (0, MINUTE, HOUR):
        scene.now = NOW + span
        await scene.accept(2)
        first, second = await scene.claim()
        await scene.deliver(first)
        await scene.kill(second)


async def _everything(scene: Scene) -> list[object]:
    """The answers to all queries about figures."""
    store, endpoint_id = scene.store, scene.endpoint.endpoint_id
    spans = [
        (await store.series(org_id, [one], span, 0, NOW + DAY))[one]
        for org_id, one in ((None, None), (scene.org_id, None), (scene.org_id, endpoint_id))
        for span in Span
    ]
    sums = await store.figures(scene.org_id, [endpoint_id], NOW, NOW + 2 * HOUR)
    return [spans, sums, await totals(store), await total(scene), await own(scene)]


async def test_folding_changes_nothing_that_can_be_asked(scene: Scene) -> None:
    await _some_life(scene)
    before = await _everything(scene)
    assert await scene.store.aggregate(scene.now, 100) >= 4, "an endpoint's and an organization's of two ended minutes"
    assert await _everything(scene) == before
    assert await scene.store.aggregate(scene.now, 100) == 0, "the third minute goes on"
    await scene.store.aggregate(scene.now + MINUTE, 100)
    assert await _everything(scene) == before
    await check_recount(scene)


async def test_folding_goes_bit_by_bit(scene: Scene) -> None:
    await _some_life(scene)
    before = await _everything(scene)
    later = scene.now + MINUTE
    moved = [await scene.store.aggregate(later, 4) for _ in range(4)]
    assert moved[0] == 4 and max(moved) <= 4 and sum(moved) >= 6 and moved[-1] == 0
    assert await _everything(scene) == before


async def test_a_tick_that_comes_after_its_minute_was_folded_is_added(scene: Scene) -> None:
    await scene.accept()
    await scene.store.aggregate(scene.now + MINUTE, 100)
    await scene.accept()
    await scene.store.aggregate(scene.now + MINUTE, 100)
    (point,) = (await scene.store.series(scene.org_id, [None], Span.MINUTE, 0, NOW + DAY))[None]
    assert (point.at, point.figures.created) == (FIRST_MINUTE, 2)


async def test_several_who_fold_at_once_count_everything_once(scene: Scene, other_store: Store) -> None:
    await _some_life(scene)
    before = await _everything(scene)
    later = scene.now + MINUTE
    folds = [store.aggregate(later, 2) for store in (scene.store, other_store) * 5]
    await asyncio.gather(*folds)
    await scene.store.aggregate(later, 100)
    assert await _everything(scene) == before


async def test_minutes_and_hours_are_dropped_and_what_is_since_ever_stays(scene: Scene) -> None:
    await _some_life(scene)
    ever = await totals(scene.store, scene.org_id)
    later = NOW + DAY
    await scene.store.aggregate(later, 100, minutes_before=FIRST_MINUTE + MINUTE)
    assert len((await scene.store.series(scene.org_id, [None], Span.MINUTE, 0, later))[None]) == 2
    assert len((await scene.store.series(scene.org_id, [None], Span.HOUR, 0, later))[None]) == 2
    await scene.store.aggregate(later, 100, minutes_before=later, hours_before=later)
    for span in (Span.MINUTE, Span.HOUR):
        assert (await scene.store.series(scene.org_id, [None], span, 0, later))[None] == []
    assert await totals(scene.store, scene.org_id) == ever


# -- series and sums ---------------------------------------------------------------------------------------


async def test_a_series_has_the_minutes_in_which_something_happened(scene: Scene) -> None:
    await _some_life(scene)
    series = (await scene.store.series(scene.org_id, [None], Span.MINUTE, 0, NOW + DAY))[None]
    assert [point.at for point in series] == [FIRST_MINUTE, FIRST_MINUTE + MINUTE, FIRST_MINUTE + HOUR]
    assert [point.figures.created for point in series] == [2, 2, 2]
    hours = (await scene.store.series(scene.org_id, [None], Span.HOUR, 0, NOW + DAY))[None]
    assert [point.figures.created for point in hours] == [4, 2]


async def test_a_series_begins_at_its_beginning_and_ends_before_its_end(scene: Scene) -> None:
    await _some_life(scene)
    for fold in (False, True):
        if fold:
            await scene.store.aggregate(NOW + DAY, 100)
        series = (
            await scene.store.series(scene.org_id, [None], Span.MINUTE, FIRST_MINUTE + MINUTE, FIRST_MINUTE + HOUR)
        )[None]
        assert [point.at for point in series] == [FIRST_MINUTE + MINUTE]


async def test_an_endpoint_has_its_own_series_and_nothing_of_events(scene: Scene) -> None:
    other = await scene.add_endpoint()
    await scene.accept(2)
    await scene.accept(3, [other])
    (point,) = (await scene.store.series(scene.org_id, [other.endpoint_id], Span.MINUTE, 0, NOW + DAY))[
        other.endpoint_id
    ]
    assert told(point.figures) == {"deliveries": 3, "now_open": 3}
    figures = await scene.store.figures(
        scene.org_id, [scene.endpoint.endpoint_id, other.endpoint_id], FIRST_MINUTE, FIRST_MINUTE + MINUTE
    )
    assert [figures[one.endpoint_id].deliveries for one in (scene.endpoint, other)] == [2, 3]


async def test_organizations_see_only_their_own(scene: Scene) -> None:
    stranger = an_org()
    await put(scene.store, stranger)
    theirs = an_endpoint(stranger.org_id)
    await put(scene.store, theirs, 0)
    await scene.accept(2)
    await scene.submit(a_submission(stranger.org_id, [theirs.endpoint_id]))
    for _ in range(2):
        assert (await totals(scene.store, scene.org_id)).created == 2
        assert (await totals(scene.store, stranger.org_id)).created == 1
        assert (await totals(scene.store)).created == 3
        mine = await scene.store.figures(scene.org_id, [theirs.endpoint_id])
        assert mine == {theirs.endpoint_id: Figures()}, "somebody else's is as good as unknown"
        anywhere = await scene.store.figures(None, [scene.endpoint.endpoint_id, theirs.endpoint_id, stranger.org_id])
        assert [one.deliveries for one in anywhere.values()] == [2, 1, 0], "the engine asks for all together"
        assert (await scene.store.series(scene.org_id, [theirs.endpoint_id], Span.MINUTE, 0, NOW + DAY))[
            theirs.endpoint_id
        ] == []
        await scene.store.aggregate(scene.now + MINUTE, 100)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("since", "until", "delivered"),
    [
        (0, HOUR + MINUTE, 3),
        (MINUTE, HOUR + MINUTE, 2),
        (MINUTE + 1, MINUTE + 2, 1),
        (2 * MINUTE, HOUR, 0),
        (HOUR, 2 * HOUR, 1),
        (-HOUR, HOUR, 2),
        (MINUTE, 2 * DAY, 3),
    ],
    ids=["all", "from the second", "inside a minute", "between", "the last", "the first", "in whole hours"],
)
async def test_sums_are_over_whole_minutes_or_whole_hours(
    scene: Scene, since: int, until: int, delivered: int, folded: bool
) -> None:
    await _some_life(scene)
    if folded:
        await scene.store.aggregate(NOW + DAY, 100)
    endpoint_id = scene.endpoint.endpoint_id
    sums = await scene.store.figures(scene.org_id, [endpoint_id], FIRST_MINUTE + since, FIRST_MINUTE + until)
    assert sums[endpoint_id].succeeded == delivered


@pytest.mark.parametrize("folded", [False, True])
async def test_the_whole_and_its_parts_are_summed_over_the_same_range(scene: Scene, folded: bool) -> None:
    await _some_life(scene)
    other = await scene.add_endpoint()
    await scene.accept(3, [other])
    if folded:
        await scene.store.aggregate(NOW + DAY, 100)
    unknown, ids = new_id(), [scene.endpoint.endpoint_id, other.endpoint_id]
    for since, until in ((NOW, NOW + 1), (NOW - HOUR, NOW + 2 * HOUR), (NOW - 2 * DAY, NOW + DAY)):
        parts = await scene.store.figures(scene.org_id, [None, *ids, unknown], since, until)
        whole = parts.pop(None)
        assert parts == await scene.store.figures(scene.org_id, [*ids, unknown], since, until)
        without_events = {"created", "delivered", "failed", "now_received", "now_queued", "now_delivered", "now_failed"}
        left = told(whole - parts[ids[0]] - parts[ids[1]])
        assert whole.created and left.keys() <= without_events, "what is left belongs to events"
    assert await scene.store.figures(scene.org_id, [], NOW, NOW + 1) == {}


async def test_the_whole_and_its_parts_are_of_one_picture_whatever_happens_meanwhile(
    scene: Scene, other_store: Store
) -> None:
    there, endpoint_id = Scene(other_store), scene.endpoint.endpoint_id
    there.org, there.endpoint = scene.org, scene.endpoint
    await scene.accept(40)
    claims = await scene.claim(40)

    async def die() -> None:
        for claim in claims:
            await there.kill(claim)

    dying = asyncio.create_task(die())
    while not dying.done():
        figures = await scene.store.figures(scene.org_id, [None, endpoint_id], NOW, NOW + 1)
        assert figures[None].died == figures[endpoint_id].died
        await asyncio.sleep(0)  # the in-memory stores never yield by themselves
    await dying


async def test_the_figures_of_all_leave_out_the_reserved_organization_s_messages(scene: Scene) -> None:
    reserved = an_org(org_id=OPERATIONS_ORG)
    await put(scene.store, reserved)
    channel = an_endpoint(OPERATIONS_ORG)
    await put(scene.store, channel, 0)
    circuit = Circuit(endpoint_id=channel.endpoint_id, state=CircuitState.OPEN, failures=5, changed_at=NOW)
    await scene.store.put_circuit(circuit, 0)
    await scene.accept(2)
    await scene.submit(a_submission(OPERATIONS_ORG, [channel.endpoint_id]))
    for _ in range(2):
        assert await totals(scene.store) == await totals(scene.store, scene.org_id)
        assert (await totals(scene.store, OPERATIONS_ORG)).now_open == 1
        await scene.store.aggregate(scene.now + MINUTE, 100)
    assert await scene.store.circuit_counts() == await scene.store.circuit_counts(scene.org_id)
    assert (await scene.store.circuit_counts(OPERATIONS_ORG))[CircuitState.OPEN] == 1


@pytest.mark.parametrize("folded", [False, True])
async def test_figures_that_are_chosen_are_the_same_as_among_all_and_the_others_are_zero(
    scene: Scene, folded: bool
) -> None:
    await _some_life(scene)
    if folded:
        await scene.store.aggregate(NOW + DAY, 100)
    names, ids = ("succeeded", "dead", "now_open", "ttd_0"), [scene.endpoint.endpoint_id, new_id()]
    for since, until in ((NOW, NOW + MINUTE), (NOW, NOW + 2 * HOUR), (NOW - 3 * DAY, NOW + 2 * DAY)):
        every = await scene.store.figures(scene.org_id, ids, since, until)
        chosen = await scene.store.figures(scene.org_id, ids, since, until, names)
        assert chosen == {one: only(names, figures) for one, figures in every.items()}
    for org_id in (scene.org_id, None):
        every = await scene.store.figures(org_id, ids)
        assert only(names, every[ids[0]]) not in (Figures(), every[ids[0]]), "some are chosen, and some are not"
        chosen = await scene.store.figures(org_id, ids, names=names)
        assert chosen == {one: only(names, figures) for one, figures in every.items()}


@pytest.mark.parametrize("folded", [False, True])
async def test_the_series_of_several_endpoints_are_those_of_each_one(scene: Scene, folded: bool) -> None:
    await _some_life(scene)
    other = await scene.add_endpoint()
    await scene.accept(3, [other])
    if folded:
        await scene.store.aggregate(NOW + DAY, 100)
    unknown, ids = new_id(), [scene.endpoint.endpoint_id, other.endpoint_id]
    for asked in (
        (Span.MINUTE, 0, NOW + DAY),
        (Span.HOUR, 0, NOW + DAY),
        (Span.MINUTE, FIRST_MINUTE + MINUTE, NOW + DAY),
    ):
        series = await scene.store.series(scene.org_id, ids, *asked)
        for one in ids:
            assert await scene.store.series(scene.org_id, [one], *asked) == {one: series[one]}
        expected = {
            one: [Point.of(point.at, only(TREND, point.figures)) for point in points] for one, points in series.items()
        }
        assert await scene.store.series(scene.org_id, [*ids, unknown], *asked, TREND) == expected | {unknown: []}
    assert expected[ids[0]], "the series are not empty"
    assert await scene.store.series(scene.org_id, [], *asked, TREND) == {}
    assert await scene.store.series(unknown, ids, *asked, TREND) == {one: [] for one in ids}, "they are somebody else's"


async def test_unknown_endpoints_and_organizations_have_zeros(scene: Scene) -> None:
    unknown = new_id()
    assert await scene.store.figures(scene.org_id, [unknown], NOW, NOW + 1) == {unknown: Figures()}
    assert await scene.store.figures(unknown, [scene.endpoint.endpoint_id]) == {scene.endpoint.endpoint_id: Figures()}
    assert await scene.store.figures(scene.org_id, [], NOW, NOW + 1) == {}


# -- concurrency -------------------------------------------------------------------------------------------


async def test_what_many_do_at_once_is_counted_to_the_last(scene: Scene, other_store: Store) -> None:
    stores = (scene.store, other_store)
    endpoints = [scene.endpoint, await scene.add_endpoint(), await scene.add_endpoint()]

    async def live(store: Store, n: int) -> None:
        mine = Scene(store)
        mine.org, mine.endpoint, mine.now = scene.org, endpoints[n % 3], NOW + n * 20 * SECOND
        await mine.accept(3, endpoints)
        claims = await mine.claim(3, f"w{n}", LEASE)
        await asyncio.gather(*(_end(mine, claim) for claim in claims), store.aggregate(mine.now, 2))

    await asyncio.gather(*(live(stores[n % 2], n) for n in range(12)))
    await check_recount(scene)
    await scene.store.aggregate(NOW + DAY, 1_000)
    await check_recount(scene)


async def _end(scene: Scene, claim: object) -> None:
    number = claim.delivery_id.int % 3  # type: ignore[attr-defined]
    await (scene.deliver, scene.fail, scene.kill)[number](claim)  # type: ignore[arg-type]


# -- circuits ---------------------------------------------------------------------------------------------


async def test_circuits_are_counted_by_state_for_endpoints_that_live(scene: Scene) -> None:
    store = scene.store
    broken, probed, gone = [await scene.add_endpoint() for _ in range(3)]
    for endpoint, state in ((broken, "open"), (probed, "half_open"), (gone, "open"), (scene.endpoint, "closed")):
        circuit = Circuit(endpoint_id=endpoint.endpoint_id, state=CircuitState(state), failures=1, changed_at=NOW)
        await store.put_circuit(circuit, 0)
    scene.endpoint = gone
    await scene.change_endpoint(state=EndpointState.DELETED)
    expected = {CircuitState.CLOSED: 1, CircuitState.OPEN: 1, CircuitState.HALF_OPEN: 1}
    assert await store.circuit_counts() == await store.circuit_counts(scene.org_id) == expected
    assert set((await store.circuit_counts(new_id())).values()) == {0}
