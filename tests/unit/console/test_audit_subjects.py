"""The subject of an audit entry is shown by name, with a link while the subject exists."""

from __future__ import annotations

from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.pages.audit import Subject, endpoints_in, linked, place_of_entity, subjects_of
from doorstep.model.action import AuditEntry

CRM = UUID("01900000-0000-7000-8000-0000000000aa")
OTHER = "01900000-0000-7000-8000-0000deadbeef"
NAMES = {CRM: "crm"}


def line(action: str, *subjects: str) -> AuditEntry:
    return AuditEntry(at=0, org_id=DEFAULT_ORG, actor="marco", action=action, subjects=subjects, result="")


@pytest.mark.parametrize(
    ("action", "subject", "expected"),
    [
        ("endpoint.pause", str(CRM), Subject("crm", str(CRM), f"/console/endpoints/{CRM}")),
        ("endpoint.pause", OTHER, Subject("endpoint deadbeef", OTHER, f"/console/endpoints/{OTHER}")),
        ("resolve", OTHER, Subject("delivery deadbeef", OTHER, f"/console/deliveries/{OTHER}")),
        ("bulk.retry.start", OTHER, Subject("bulk deadbeef", OTHER, f"/console/bulk/{OTHER}")),
        ("batch.resubmit", OTHER, Subject("batch deadbeef", OTHER, f"/console/batches/{OTHER}")),
        ("event.delete", OTHER, Subject("event deadbeef", OTHER, None)),
        ("key.create", OTHER, Subject("key deadbeef", OTHER, None)),
    ],
)
def test_a_subject_has_a_name_or_a_kind_and_a_way_there(action: str, subject: str, expected: Subject) -> None:
    assert subjects_of(line(action, subject), NAMES) == [expected]


def test_a_replay_is_about_an_event_and_an_endpoint() -> None:
    replay = line("event.replay", OTHER, str(CRM))
    assert [one.label for one in subjects_of(replay, NAMES)] == ["event deadbeef", "crm"]
    assert endpoints_in([replay]) == {CRM}


def test_an_entity_is_named_with_its_pipeline_and_lost_when_it_is_deleted() -> None:
    whole = Subject("bill B-7:a", "bill B-7:a", "/console/pipelines/bill/B-7%3Aa")
    assert subjects_of(line("entity.approve", "bill", "B-7:a"), {}) == [whole]
    assert subjects_of(line("entity.delete", "bill", "B-7:a"), {}) == [whole._replace(path=None)]


def test_an_id_with_slashes_leads_where_the_page_of_the_entity_is() -> None:
    (subject,) = subjects_of(line("entity.approve", "bill", "2024/7 ?#é"), {})
    assert subject.path == place_of_entity("bill", "2024/7 ?#é") == "/console/pipelines/bill/2024%2F7%20%3F%23%C3%A9"


def test_a_text_is_told_word_for_word_but_for_the_ids_in_it() -> None:
    assert linked("3 done, 1 refused") == ["3 done, 1 refused"]
    assert linked("") == []
    named = Subject("event deadbeef", OTHER, f"/console/events/{OTHER}")
    assert linked(f"event {OTHER}") == [named]
    short = Subject("deadbeef", OTHER, None)
    assert linked(f"see {OTHER}, event {OTHER}.") == ["see ", short, ", ", named, "."]
