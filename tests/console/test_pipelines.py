"""Pipeline pages: how many entities are in each status, the history and error of each entity, and the possible
actions."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from doorstep import Transient
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.pages import pipelines as entity_page
from doorstep.errors import NotFound
from doorstep.model.entity import Entity, EntityChange, Phase, PipelineDeclaration
from doorstep.model.org import Role
from tests.acceptance.protocols import Protocols, failing
from tests.console.carrying import GATE, carried, complete, dead, row_of, waiting
from tests.console.visiting import Console, Shown
from tests.support.api import Api, serving
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene
from tests.support.shortcuts import put

PIPELINES = "/console/pipelines"
PROTOCOLS = f"{PIPELINES}/protocol"
P1 = f"{PROTOCOLS}/p1"
A_WEEK = 7 * 86_400 + 60
"""Long enough for the session to expire too."""
ACTS = ("Retry", "Approve", "Reject", "Delete")


@pytest_asyncio.fixture(loop_scope="session")
async def protocols(database_url: str, receiver: Receiver) -> AsyncIterator[Protocols]:
    async with carried(database_url, receiver) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def scene(protocols: Protocols) -> Scene:
    return protocols.scene


async def stranger(scene: Scene, api: Api) -> Console:
    """A session of an admin of another organization."""
    caller, _ = await scene.doorstep.components.keys.create(DEFAULT_ORG, "an admin", Role.ADMIN, "test")
    _, _, key = await scene.doorstep.components.keys.create_org("other", caller)
    return await Console(api.url).sign_in(key)


async def keep(protocols: Protocols, entity_id: str, status: str = "complete", **fields: object) -> Entity:
    """Store an entity as an earlier version of the program may have left it."""
    now = protocols.scene.clock.now()
    entity = Entity(
        entity_id=entity_id,
        org_id=DEFAULT_ORG,
        pipeline="protocol",
        status=status,
        phase=Phase.RESTING,
        created_at=now,
        changed_at=now,
        **fields,  # type: ignore[arg-type]
    )
    assert await protocols.doorstep.components.store.put_entity(
        entity, 0, EntityChange(now, None, status, "started", None)
    )
    return entity


def listed(shown: Shown) -> list[str]:
    """The entities of a list, in order."""
    return [html.unescape(one) for one in re.findall(r'<td class="name"><a [^>]*>(.*?)</a>', shown.source)]


def acts_on(shown: Shown) -> list[str]:
    """The action buttons for the entity, at the top of its page."""
    top = shown.source.partition('<div class="actions">')[2].partition('<div class="columns">')[0]
    return [act for act in ACTS if f">{act}<" in top]


# -- all pipelines -----------------------------------------------------------------------------------------


async def test_a_pipeline_is_shown_as_its_stages_in_order_with_how_many_are_where(
    protocols: Protocols, console: Console
) -> None:
    await waiting(protocols, "a")
    await waiting(protocols, "b")
    await complete(protocols, "c")
    await dead(protocols, "d")
    shown = await console.get(PIPELINES)
    assert (
        "protocol uploaded 0 start extracting 0 stage grounding 0 stage pending review 2 waits for approval "
        "complete 1 end extraction failed 0 grounding failed 0 dead letter 1 archived 0"
    ) in shown.text
    assert f'class="failed" href="{PROTOCOLS}?status=dead_letter"' in shown.source
    assert f'class="" href="{PROTOCOLS}?status=extraction_failed"' in shown.source, "nothing failed there"


async def test_an_entity_that_nobody_touched_for_a_week_counts_as_archived(
    protocols: Protocols, api: Api, console: Console
) -> None:
    await dead(protocols)
    protocols.scene.clock.leap(A_WEEK)
    await console.sign_in(api.key)
    assert "dead letter 0 archived 1" in (await console.get(PIPELINES)).text


async def test_where_there_is_no_pipeline_it_says_how_to_declare_one(scene: Scene, api: Api) -> None:
    shown = await (await stranger(scene, api)).get(PIPELINES)
    assert "This server's program has no pipeline." in shown.text
    assert "doorstep serve --app program:doorstep" in shown.text
    assert "protocol" not in shown.text, "that of another organization"


async def test_the_declaration_that_it_shows_works() -> None:
    from doorstep.console.rendering import _environment

    source, *_ = _environment().loader.get_source(_environment(), "pipelines.html")  # type: ignore[union-attr]
    program = source.partition('<pre class="text sample">')[2].partition("</pre>")[0]
    made: dict[str, object] = {}
    exec(program.replace("Doorstep()", 'Doorstep("sqlite:///never-opened.db")'), made)  # noqa: S102  the console's own words
    assert list(made["doorstep"].registry.pipelines) == ["order"]  # type: ignore[attr-defined]


async def test_pipelines_that_only_workers_have_are_named(protocols: Protocols, console: Console) -> None:
    now = protocols.scene.clock.now()
    declared = PipelineDeclaration(org_id=DEFAULT_ORG, pipeline="import", declared_at=now)
    await put(protocols.doorstep.components.store, declared)
    assert "Other workers declare import." in (await console.get(PIPELINES)).text


# -- one pipeline ------------------------------------------------------------------------------------------


async def test_the_list_is_narrowed_by_status_and_hides_archived_ones_unless_asked(
    protocols: Protocols, api: Api, console: Console
) -> None:
    await dead(protocols, "old")
    protocols.scene.clock.leap(A_WEEK)
    await console.sign_in(api.key)
    await dead(protocols, "fresh")
    await waiting(protocols, "at-gate")
    for query, expected in {
        "": ["at-gate", "fresh"],
        "?archived=yes": ["at-gate", "fresh", "old"],
        "?status=archived": ["old"],
        "?status=dead_letter": ["fresh"],
        f"?status={GATE}": ["at-gate"],
        "?status=complete": [],
        "?status=unheard_of": [],
    }.items():
        shown = await console.get(PROTOCOLS + query)
        assert listed(shown) == expected, query
        assert expected or "for this filter." in shown.text


async def test_a_row_has_its_error_and_a_retry_where_that_is_possible(protocols: Protocols, console: Console) -> None:
    await dead(protocols, "d")
    await complete(protocols, "c")
    shown = await console.get(PROTOCOLS)
    assert re.search(
        r"d dead letter .* INVALID_FORMAT The document is a picture, not a text. .* Retry", row_of(shown, "d")
    )
    assert "Retry" not in row_of(shown, "c")
    again = await console.post(f"{PROTOCOLS}/d/retry", back=PROTOCOLS)
    assert (again.path, again.said) == (PROTOCOLS, "protocol d starts again from its first stage.")


async def test_a_filter_that_cannot_be_used_says_so(console: Console, subtests: pytest.Subtests) -> None:
    for query in ("status=a%00b", "cursor=nonsense"):
        with subtests.test(query=query):
            shown = await console.get(f"{PROTOCOLS}?{query}")
            assert shown.status == 422
            assert query.partition("=")[0] in shown.text


async def test_without_any_entity_it_says_how_one_is_started(console: Console) -> None:
    assert "No protocol yet." in (await console.get(PROTOCOLS)).text


async def test_pages_follow_each_other_without_gaps(protocols: Protocols, console: Console) -> None:
    for number in range(53):
        await keep(protocols, f"e{number}")
    first = await console.get(PROTOCOLS)
    onward = first.source.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
    assert listed(first) + listed(await console.get(onward)) == [f"e{number}" for number in reversed(range(53))]


async def test_what_is_another_organizations_is_unknown(protocols: Protocols, scene: Scene, api: Api) -> None:
    await waiting(protocols)
    other = await stranger(scene, api)
    for path in (PROTOCOLS, P1, f"{P1}/delete"):
        assert (await other.get(path)).status == 404
    await other.get(PIPELINES)
    for path in (f"{P1}/delete", f"{P1}/gates/{GATE}/approve"):
        assert (await other.post(path, back=P1)).status in (403, 404)
    assert (await protocols.pipeline.entity("p1")).status == GATE


# -- one entity --------------------------------------------------------------------------------------------


async def test_an_entity_shows_why_it_failed_its_data_and_its_whole_way(
    protocols: Protocols, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity = await dead(protocols)
    shown = await console.get(P1)
    for words in (
        "p1 dead letter",
        "INVALID_FORMAT The document is a picture, not a text.",
        "INVALID_FORMAT , permanent Attempts 1",
        '"path": "a.txt"',
    ):
        assert words in shown.text, words
    way = shown.text.partition("History")[2]
    places = [way.index(words) for words in ("uploaded", "extracting", "extraction failed", "dead letter")]
    assert places == sorted(places)
    assert shown.source.count(f'href="/console/events/{entity.event_id}"') == 6, "present, error, and each change"
    assert shown.source.count('<rect class="failed"') == 2
    assert re.search(r"Status dead letter, (now|.* ago) ", shown.text)
    assert 'data-copy="#data-text"' in shown.source
    monkeypatch.setattr(entity_page, "_DATA_CHARACTERS_MAX", 5)
    shown = await console.get(P1)
    assert "Only the beginning is shown" in shown.text
    assert 'data-copy="#data-text"' not in shown.source, "half of it would look like all"


async def test_one_that_waits_for_its_next_try_says_when(database_url: str, receiver: Receiver) -> None:
    """With a policy that waits between attempts."""
    async with carried(database_url, receiver, policy="standard") as protocols, serving(protocols.scene) as api:
        protocols.does["extracting"] = failing(Transient("CONNECTION", "The archive cannot be reached."))
        await protocols.start()
        await protocols.until("extraction_failed")
        shown = await (await Console(api.url).sign_in(api.key)).get(P1)
        assert re.search(r"queued Next retry (in )?\d", shown.text), shown.text
        assert acts_on(shown) == ["Retry", "Delete"]


async def test_what_can_be_done_depends_on_the_status(protocols: Protocols, console: Console) -> None:
    await dead(protocols)
    assert acts_on(await console.get(P1)) == ["Retry", "Delete"]
    await protocols.pipeline.retry("p1", "mary")
    await protocols.until(GATE)
    assert acts_on(await console.get(P1)) == ["Approve", "Reject", "Delete"]
    await protocols.pipeline.approve("p1", "mary")
    assert acts_on(await console.get(P1)) == ["Delete"]


async def test_a_viewer_sees_everything_and_may_do_nothing(protocols: Protocols, viewer: Console) -> None:
    await waiting(protocols)
    await dead(protocols, "d")
    for path in (P1, f"{PROTOCOLS}/d"):
        shown = await viewer.get(path)
        assert (shown.status, acts_on(shown)) == (200, [])
    assert "Retry" not in row_of(await viewer.get(PROTOCOLS), "d")
    for path in (f"{P1}/delete", f"{P1}/gates/{GATE}/reject"):
        assert (await viewer.get(path)).status == 403
        assert (await viewer.post(path, reason="no")).status == 403
    for path in (f"{P1}/retry", f"{P1}/gates/{GATE}/approve"):
        assert (await viewer.post(path)).status == 403
    assert (await protocols.pipeline.entity("p1")).status == GATE


async def test_a_retry_sends_it_through_again_and_is_refused_where_nothing_failed(
    protocols: Protocols, console: Console
) -> None:
    await dead(protocols)
    await console.get(P1)
    shown = await console.post(f"{P1}/retry", back=P1)
    assert (shown.path, shown.said) == (P1, "protocol p1 starts again from its first stage.")
    await protocols.until(GATE)
    refused = await console.post(f"{P1}/retry", back=P1)
    assert refused.said == (
        "protocol p1 is pending_review and cannot be retried; "
        "only extraction_failed, grounding_failed, dead_letter, archived can"
    )


async def test_an_approval_is_about_the_gate_that_was_seen(protocols: Protocols, console: Console) -> None:
    await waiting(protocols)
    await console.get(P1)
    shown = await console.post(f"{P1}/gates/final_review/approve", back=P1)
    assert shown.said == "protocol p1 is pending_review, not final_review; look at it again"
    shown = await console.post(f"{P1}/gates/{GATE}/approve", back=P1)
    assert shown.said == "protocol p1 was approved."
    assert (await protocols.pipeline.entity("p1")).status == "complete"
    again = await console.post(f"{P1}/gates/{GATE}/approve", back=P1)
    assert "p1 is complete; a decision is possible only at pending_review" in (again.said or "")


async def test_a_rejection_needs_a_reason_and_keeps_it(protocols: Protocols, console: Console) -> None:
    await waiting(protocols)
    asked = await console.get(f"{P1}/gates/{GATE}/reject?back={P1}")
    assert "Reject protocol p1? Its status becomes dead letter." in asked.text
    refused = await console.post(f"{P1}/gates/{GATE}/reject", back=P1)
    assert refused.asks_why and "Reject protocol p1?" in refused.text
    assert refused.field("back") == P1
    assert (await protocols.pipeline.entity("p1")).status == GATE
    shown = await console.post(f"{P1}/gates/{GATE}/reject", reason="wrong bearing", back=P1)
    assert shown.said == "protocol p1 was rejected."
    entity = await protocols.pipeline.entity("p1")
    assert entity.status == "dead_letter"
    assert (entity.error_reason or "").endswith(": wrong bearing")


async def test_a_deletion_is_asked_for_and_leaves_its_audit_line(protocols: Protocols, console: Console) -> None:
    await waiting(protocols)
    assert "Delete protocol p1?" in (await console.get(f"{P1}/delete?back={P1}")).text
    shown = await console.post(f"{P1}/delete", reason="sent by mistake", back=P1)
    assert (shown.path, shown.said) == (PROTOCOLS, "protocol p1 was deleted.")
    with pytest.raises(NotFound):
        await protocols.pipeline.entity("p1")
    assert (await console.get(P1)).status == 404
    (line,) = (await protocols.doorstep.components.reader.audit(DEFAULT_ORG, None, "entity.delete", None, 10)).items
    assert line.reason == "sent by mistake"


async def test_a_status_that_is_no_longer_declared_can_be_seen_and_left(protocols: Protocols, console: Console) -> None:
    await keep(protocols, "p1", status="translating")
    assert "archived 0 translating 1" in (await console.get(PIPELINES)).text
    assert listed(await console.get(f"{PROTOCOLS}?status=translating")) == ["p1"]
    shown = await console.get(P1)
    assert "The program no longer declares this status." in shown.text
    assert acts_on(shown) == ["Retry", "Delete"]
    await console.post(f"{P1}/retry", back=P1)
    await protocols.until(GATE)


HOSTILE = (
    "a?b#c%2Fd&e=f",
    '"><script>window.struck=1</script>'.replace("/", "|"),
    "it's {{7*7}} \u202e ünï",
    "x;y:z@~+ ",
)


async def test_an_id_is_text_and_leads_to_its_entity_whatever_it_is(
    protocols: Protocols, console: Console, subtests: pytest.Subtests
) -> None:
    for entity_id in HOSTILE:
        with subtests.test(entity_id=entity_id):
            await keep(
                protocols, entity_id, data={"text": "</pre><script>window.struck=1</script>"}, error_reason="<b>bad</b>"
            )
            in_list = await console.get(PROTOCOLS)
            place = html.unescape(re.search(r'<td class="name"><a href="([^"]*)"', in_list.source)[1])  # type: ignore[index]
            assert place == f"{PROTOCOLS}/{quote(entity_id, safe='')}"
            shown = await console.get(place)
            assert shown.status == 200
            for page in (in_list, shown):
                assert "<script>window" not in page.source and "<b>bad" not in page.source
            await console.post(f"{place}/delete", reason="a test", back=place)
            assert listed(await console.get(PROTOCOLS)) == []
