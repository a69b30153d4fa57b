"""`doorstep pipelines` against `doorstep serve --app`, with a program that declares a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Remote
from tests.support.program import serving, wait_for

PROGRAM = """
from doorstep import Doorstep, Gate, Permanent, Pipeline, Stage

doorstep = Doorstep("sqlite:///app.db")
protocols = Pipeline(
    "protocol",
    first="uploaded",
    stages=[Stage("extracting", failed="extraction_failed"), Gate("pending_review")],
    last="complete",
    policy=(0, 0),
)
doorstep.add(protocols)


@protocols.stage("extracting")
def extract(entity):
    if entity.data["bad"]:
        raise Permanent("INVALID_FORMAT", "This is no document.")


@doorstep.handler("document.uploaded")
async def begin(event):
    await protocols.start(event.json(), event.json()["id"])
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("program")
    Path(folder, "documents.py").write_text(PROGRAM)
    with serving(folder, "--app", "documents:doorstep") as program:
        it = Remote(program)
        for name, bad in (("good", False), ("bad", True), ("poor", False)):
            event = {"event_type": "document.uploaded", "payload": {"id": name, "bad": bad}}
            assert program.post("/v1/events", event).status == 202
            wait_for(lambda name=name: it("pipelines", "show", "protocol", name).code == 0)
            wait_for(lambda name=name: status(it, name) in ("pending_review", "dead_letter"))
        yield it


def status(remote: Remote, entity_id: str) -> str:
    return str(remote.json("pipelines", "show", "protocol", entity_id)["status"])


def test_the_pipelines_are_named_with_their_statuses(remote: Remote) -> None:
    (pipeline,) = remote.json("pipelines", "names")["pipelines"]
    assert (pipeline["name"], pipeline["gates"]) == ("protocol", ["pending_review"])
    assert "protocol" in remote("pipelines", "names").out


def test_entities_are_listed_by_status(remote: Remote) -> None:
    listed = remote.json("pipelines", "list", "protocol", "--status", "dead_letter")["entities"]
    assert [one["entity_id"] for one in listed] == ["bad"]
    assert "This is no document." in remote("pipelines", "list", "protocol").out
    assert len(remote.json("pipelines", "list", "protocol", "--archived", "--limit", "2")["entities"]) == 2


def test_a_dead_one_is_retried_and_its_history_tells_of_it(remote: Remote) -> None:
    done = remote.json("pipelines", "retry", "protocol", "bad", "--reason", "once more")
    assert done == {"status": "retry_queued", "protocol_id": "bad"}
    wait_for(lambda: status(remote, "bad") == "dead_letter")
    reasons = [line["reason"] for line in remote.json("pipelines", "history", "protocol", "bad")["history"]]
    assert [reason for reason in reasons if reason.startswith("retried by ") and reason.endswith(": once more")]


def test_a_review_is_decided_and_what_cannot_be_done_has_an_exit_code(remote: Remote) -> None:
    elsewhere = remote("pipelines", "approve", "protocol", "good", "--gate", "second_review")
    assert (elsewhere.code, "is pending_review, not second_review" in elsewhere.err) == (4, True)
    assert "complete" in remote("pipelines", "approve", "protocol", "good", "--gate", "pending_review").out
    assert "dead_letter" in remote("pipelines", "reject", "protocol", "poor", "--reason", "unsigned").out
    assert remote("pipelines", "approve", "protocol", "good").code == 4
    refused = remote("pipelines", "retry", "protocol", "good")
    assert refused.code != 0 and "protocol good is complete and cannot be retried" in refused.err
    assert remote("pipelines", "show", "protocol", "nobody").code != 0


def test_one_is_deleted_only_if_that_is_meant(remote: Remote) -> None:
    assert remote("pipelines", "delete", "protocol", "poor").code != 0
    assert status(remote, "poor")
    assert remote.json("pipelines", "delete", "protocol", "poor", "--yes") == {"entity_id": "poor", "deleted": True}
    assert remote("pipelines", "show", "protocol", "poor").code != 0
