"""R7, R12: the audit entries about one thing are found quickly, however many entries about other things followed."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import DAY
from doorstep.model.action import AuditEntry
from doorstep.model.listing import AuditFilter
from doorstep.stores.store import Cleaned, Retention
from tests.contract.places import MemoryPlace, Place, ReferencePlace, SqlPlace
from tests.contract.scene import Scene
from tests.contract.wanted import all_of, pages_of
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put

LATER = 5_000
MANY = 1_000


def a_line(scene: Scene, *subjects: object, **fields: object) -> AuditEntry:
    line = AuditEntry(
        at=scene.now, org_id=scene.org_id, actor="ops", action="x", subjects=tuple(map(str, subjects)), result=""
    )
    return replace(line, **fields)


async def about(scene: Scene, *wanted: UUID) -> tuple[AuditEntry, ...]:
    return (await scene.store.page(scene.org_id, AuditFilter(about=tuple(wanted)))).items


async def crowd(scene: Scene, place: Place) -> None:
    """Add many later audit entries; in a database, with a single statement."""
    if place.name == "dynamodb":
        pytest.skip("no index of DynamoDB serves this filter: a page looks at 2,000 entries, so this takes several")
    if isinstance(place, ReferencePlace | MemoryPlace):
        for _ in range(LATER):
            await scene.store.write([], a_line(scene, new_id()))
        return
    await cast(SqlPlace, place).execute(
        f"WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {LATER})"
        " INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason)"
        f" SELECT (SELECT min(id) FROM doorstep_orgs), {scene.now}, 'ops', 'x', '[]', '', '' FROM numbers"
    )


async def test_a_line_behind_five_thousand_others_is_on_the_first_page_of_what_it_is_about(
    scene: Scene, place: Place
) -> None:
    wanted = new_id()
    await scene.store.write([], line := a_line(scene, wanted, new_id()))
    await crowd(scene, place)
    assert len(await all_of(scene.store.page, scene.org_id, AuditFilter(), limit=1_000)) == LATER + 1
    page = await scene.store.page(scene.org_id, AuditFilter(about=(wanted,)))
    assert (page.items, page.next) == ((line,), None)
    filtered = await scene.store.page(scene.org_id, AuditFilter(actors=("ops",), action="x", about=(new_id(), wanted)))
    assert (filtered.items, filtered.next) == ((line,), None)


async def test_a_rare_action_behind_five_thousand_others_is_on_the_first_page_of_its_action(
    scene: Scene, place: Place
) -> None:
    rare = [a_line(scene, action="key.create"), a_line(scene, action="key.create", actor="ada", at=scene.now + 1)]
    for line in rare:
        await scene.store.write([], line)
    scene.wait(2)
    await crowd(scene, place)
    newest_first = tuple(reversed(rare))
    for wanted, expected in {
        AuditFilter(action="key.create"): newest_first,
        AuditFilter(actors=("ops",), action="key.create"): (rare[0],),
        AuditFilter(actors=("ops", "ada"), action="key.create"): newest_first,
        AuditFilter(action="key.create", before=scene.now - 1): (rare[0],),
        AuditFilter(action="key.create", since=scene.now - 1): (rare[1],),
        AuditFilter(action="never"): (),
    }.items():
        page = await scene.store.page(scene.org_id, wanted)
        assert (page.items, page.next) == (expected, None), wanted
        assert tuple(await all_of(scene.store.page, scene.org_id, wanted, limit=1)) == expected
    of_ada = AuditFilter(actors=("ada",), action="x")
    assert (await scene.store.page(scene.org_id, of_ada)).next is None


async def test_lines_about_several_things_come_page_by_page_in_their_order_and_each_once(scene: Scene) -> None:
    one, other, third = (new_id() for _ in range(3))
    mixture: list[tuple[UUID, ...]] = [(one,), (other, one), (third,), (other,), (one, third), (one, other, third)]
    lines = [a_line(scene, *subjects, actor=f"a{n % 2}") for n, subjects in enumerate(mixture * 2)]
    for line in lines:
        await scene.store.write([], line)
    for wanted in ([one], [one, other], [other, one, other], [third, one, other]):
        expected = [line for line in reversed(lines) if not {str(each) for each in wanted}.isdisjoint(line.subjects)]
        for limit in (1, 2, 5):
            query = AuditFilter(about=tuple(wanted))
            assert await all_of(scene.store.page, scene.org_id, query, limit=limit) == expected
        odd = [line for line in expected if line.actor == "a1"]
        assert (
            await all_of(scene.store.page, scene.org_id, AuditFilter(actors=("a1",), about=tuple(wanted)), limit=2)
            == odd
        )


async def test_an_id_that_a_line_names_twice_or_that_is_no_id_does_no_harm(scene: Scene) -> None:
    wanted = new_id()
    line = a_line(scene, "invoices", wanted, wanted, "", str(wanted).upper(), f"{wanted}é")
    await scene.store.write([], line)
    assert await about(scene, wanted) == (line,)
    await scene.store.write([], a_line(scene, "invoices", f"{wanted}-2"))
    assert await about(scene, wanted) == (line,), "the beginning of a name is not an id"


async def test_what_another_organization_did_to_it_stays_its_own(scene: Scene) -> None:
    wanted, other = new_id(), an_org()
    await put(scene.store, other)
    await scene.store.write([], a_line(scene, wanted, org_id=other.org_id))
    assert await about(scene, wanted) == ()


async def test_a_line_about_a_thousand_things_is_found_by_each_of_them(scene: Scene) -> None:
    subjects = [new_id() for _ in range(MANY)]
    await scene.store.write([], line := a_line(scene, *subjects))
    for wanted in (subjects[0], subjects[-1]):
        assert await about(scene, wanted) == (line,)
    assert await pages_of(scene.store.page, scene.org_id, AuditFilter(about=tuple(subjects[:20])), limit=5) == [(line,)]


async def test_a_line_that_is_removed_is_no_longer_found_by_what_it_was_about(scene: Scene) -> None:
    wanted = new_id()
    await scene.store.write([], a_line(scene, wanted))
    scene.wait(DAY)
    await scene.store.write([], left := a_line(scene, wanted))
    assert await scene.store.clean(Retention(audit_before=scene.now), scene.now, 9) == Cleaned(audit_entries=1)
    assert await about(scene, wanted) == (left,)


async def test_nothing_is_left_of_removed_lines_and_a_round_removes_a_bounded_number_of_rows(
    sql_scene: Scene, sql_place: SqlPlace
) -> None:
    for _ in range(12):
        await sql_scene.store.write([], a_line(sql_scene, *(new_id() for _ in range(MANY))))
    await sql_scene.store.write([], a_line(sql_scene, *(new_id() for _ in range(12 * MANY))))
    rounds = [
        await sql_scene.store.clean(Retention(audit_before=sql_scene.now + 1), sql_scene.now, 500) for _ in range(3)
    ]
    assert [one.audit_entries for one in rounds] == [11, 2, 0], "some 10,000 ids, or one line that has more"
    for table in ("doorstep_audit", "doorstep_audit_subjects"):
        assert await sql_place.execute(f"SELECT count(*) FROM {table}") == [(0,)]
