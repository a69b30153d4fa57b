"""R12: the console shows who did what to what, by name and with links; no organization sees another's names."""

from __future__ import annotations

from uuid import UUID

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import moment
from doorstep.model.action import ActionKind, AuditEntry
from doorstep.model.bulk import Bulk, BulkKind, Selection
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter
from doorstep.model.org import ApiKey, Role
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.scene import Scene

AUDIT, BULK = "/console/audit", "/console/bulk"


async def marco(scene: Scene) -> ApiKey:
    record, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "marco", Role.OPERATOR, "test")
    return record


async def begun(scene: Scene, actor: str, **more: UUID) -> Bulk:
    kind, chosen = (BulkKind.REPLAY, Selection(events=EventFilter())) if more else (BulkKind.RETRY, _LETTERS)
    return await scene.doorstep.components.bulk.start(kind, DEFAULT_ORG, chosen, actor, reason="outage", **more)


_LETTERS = Selection(letters=DeadLetterFilter())


async def under_way(scene: Scene, actor: str) -> UUID:
    """An event whose delivery was skipped, while other deliveries are retried in bulk: two immediately, then one a
    minute."""
    scene.receiver.says(503)
    await scene.endpoint(policy=RetryPolicy((600.0,)))
    first, *others = [await scene.until_tried(await scene.send()) for _ in range(4)]
    for delivery in (first, *others):
        await scene.until_state(delivery, DeliveryState.PENDING)
    await scene.doorstep.components.deliveries.act_on(ActionKind.SKIP, DEFAULT_ORG, first.delivery_id, actor)
    queue = Selection(queue=RetryQueueFilter())
    await scene.doorstep.components.bulk.start(BulkKind.RETRY, DEFAULT_ORG, queue, actor, rate_per_second=1 / 60)
    return first.event_id


async def test_whoever_has_a_key_is_called_by_its_name_also_when_it_is_revoked(scene: Scene, console: Console) -> None:
    key = await marco(scene)
    bulk = await begun(scene, key.prefix)
    await begun(scene, "cli")
    silence = await scene.doorstep.components.alerts.silence(
        DEFAULT_ORG, key.prefix, until_at=scene.clock.now() + 10**9
    )
    await scene.doorstep.components.keys.revoke(DEFAULT_ORG, key.key_id, "test")
    event = await under_way(scene, key.prefix)
    named = f'<span title="{key.prefix}">marco</span>'
    paths = AUDIT, BULK, f"{BULK}/{bulk.bulk_id}", "/console/alerts/silences", "/console", f"/console/events/{event}"
    for path in paths:
        assert named in (await console.get(path)).source, path
    assert "cli" in (await console.get(BULK)).text
    assert silence.actor == key.prefix, "what is kept is the key, whatever it is called"


async def test_a_name_finds_what_every_key_of_this_name_did_and_what_was_done_without_a_key(
    scene: Scene, console: Console
) -> None:
    actors = [(await marco(scene)).prefix, (await marco(scene)).prefix, "marco", "lena"]
    bulks = [str((await begun(scene, actor)).bulk_id) for actor in actors]
    for query, found in {"marco": bulks[:3], actors[0]: bulks[:1], "lena": bulks[3:], "nobody": []}.items():
        shown = (await console.get(f"{AUDIT}?actor={query}&action=bulk.retry.start")).source
        assert [bulk for bulk in bulks if bulk in shown] == found, query
    assert "No actions for this filter." in (await console.get(f"{AUDIT}?actor=nobody")).text


async def test_the_log_is_filtered_by_date(scene: Scene, console: Console) -> None:
    early = await begun(scene, "marco")
    scene.leap(3_600)
    between = moment(scene.clock.now()).replace(" ", "T")
    scene.leap(3_600)
    late = await begun(scene, "marco")
    for query, found in ((f"since={between}", late), (f"until={between}", early)):
        shown = (await console.get(f"{AUDIT}?actor=marco&{query}")).source
        assert [bulk for bulk in (early, late) if str(bulk.bulk_id) in shown] == [found]
        assert f'value="{between}"' in shown, "the filter stays in its form"
    assert (await console.get(f"{AUDIT}?since=yesterday")).status == 422


async def test_the_log_is_filtered_by_what_was_done_to_one_thing(scene: Scene, console: Console) -> None:
    bulk, _ = await begun(scene, "marco"), await begun(scene, "lena")
    shown = await console.get(f"{AUDIT}?about={bulk.bulk_id}")
    assert "marco" in shown.text and "lena" not in shown.text
    assert (await console.get(f"{AUDIT}?about=nonsense")).status == 422


async def test_ids_in_results_and_reasons_are_short_and_lead_to_what_they_name(scene: Scene, console: Console) -> None:
    event_id, bulk_id, other = (f"01900000-0000-7000-8000-0000deadbee{n}" for n in range(3))
    line = AuditEntry(
        at=scene.clock.now(),
        org_id=DEFAULT_ORG,
        actor="<i>ops</i>",
        action="x",
        subjects=(),
        result=f"event {event_id}",
        reason=f"bulk operation {bulk_id}: <b>see</b> {other}",
    )
    await scene.doorstep.components.store.write([], line)
    shown = await console.get(AUDIT)
    assert f'<a href="/console/events/{event_id}" title="{event_id}">event {event_id[-8:]}</a>' in shown.source
    named = f'<a href="/console/bulk/{bulk_id}" title="{bulk_id}">bulk operation {bulk_id[-8:]}</a>'
    assert f"{named}: &lt;b&gt;see&lt;/b&gt;" in shown.source
    assert f'<span title="{other}">{other[-8:]}</span>' in shown.source


async def test_a_replay_leads_to_its_endpoint_by_name(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="storefront")
    bulk = await begun(scene, "test", endpoint_id=endpoint.endpoint_id)
    way = f'<a href="/console/endpoints/{endpoint.endpoint_id}">storefront</a>'
    assert way in (await console.get(f"{BULK}/{bulk.bulk_id}")).source


async def test_the_name_of_an_endpoint_is_not_told_to_another_organization_that_knows_its_id(
    scene: Scene, api: Api, console: Console
) -> None:
    endpoint = await scene.endpoint(name="secret project")
    admin = (await scene.doorstep.components.keys.keys(DEFAULT_ORG))[0]
    org, _, key = await scene.doorstep.components.keys.create_org("other", admin)
    stranger = await Console(api.url).sign_in(key)
    foreign = endpoint.endpoint_id
    line = AuditEntry(
        at=scene.clock.now(), org_id=org.org_id, actor="x", action="endpoint.x", subjects=(str(foreign),), result=""
    )
    await scene.doorstep.components.store.write([], line)
    for chosen in (
        Selection(letters=DeadLetterFilter(endpoint_id=foreign)),
        Selection(queue=RetryQueueFilter(endpoint_id=foreign)),
    ):
        bulk = await scene.doorstep.components.bulk.start(BulkKind.RETRY, org.org_id, chosen, "x")
        assert bulk.total == 0
        assert str(foreign) in (await stranger.get(f"{BULK}/{bulk.bulk_id}")).text, "what was asked for"
        for path in (f"{BULK}/{bulk.bulk_id}", BULK, AUDIT):
            assert "secret" not in (await stranger.get(path)).source, path
    for path in ("/console/retry-queue", "/console/dead-letters", "/console/alerts"):
        assert "secret" not in (await stranger.get(f"{path}?endpoint_id={foreign}")).source, path
    own = await scene.doorstep.components.bulk.start(
        BulkKind.RETRY, DEFAULT_ORG, Selection(letters=DeadLetterFilter(endpoint_id=foreign)), "x"
    )
    assert "endpoint secret project" in (await console.get(f"{BULK}/{own.bulk_id}")).text
