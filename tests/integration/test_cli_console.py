"""Ways to open the console from a terminal: the link printed at startup, and the link that `doorstep console`
requests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from doorstep.model.org import Role
from tests.integration.keys import add_key
from tests.support.commands import Remote
from tests.support.http_calls import Answer, call
from tests.support.program import Program, running, serving, wait_for

LINK = re.compile(r"http://127\.0\.0\.1:\d+/console/sign-in/[\w-]{32}")


def follow(link: str) -> Answer:
    """Request a link once without following redirects, as a browser without cookies does after the user pastes the
    link."""
    place = urlsplit(link)
    return call(f"http://{place.netloc}", "GET", place.path, None, {"Sec-Fetch-Site": "none"})


def page(url: str, answer: Answer) -> str:
    """The console's front page, requested with the session cookie from this answer."""
    cookie = next(one for one in answer.cookies if one.startswith("doorstep_session=")).partition(";")[0]
    return call(url, "GET", "/console", None, {"Cookie": cookie}).body.decode()


@pytest.fixture
def remote(served: Program) -> Remote:
    return Remote(served)


def test_a_start_prints_a_link_that_signs_in_the_first_admin_once(tmp_path: Path) -> None:
    with serving(tmp_path) as program:
        (line,) = wait_for(lambda: [line for line in program.err if line.startswith("Console: ")])
        found = LINK.search(line)
        assert found and line == f"Console: {found[0]} (signs you in once, within 30 minutes)"
        assert found[0].startswith(program.url)
        first, second = follow(found[0]), follow(found[0])
        assert (first.status, first.headers["location"]) == (303, "/console")
        assert "bootstrap" in page(program.url, first)
        assert (second.status, second.cookies) == (401, ())


def test_the_link_leads_to_where_people_reach_the_installation(tmp_path: Path) -> None:
    with serving(tmp_path, environment={"DOORSTEP_PUBLIC_URL": "https://hooks.example/"}) as program:
        (line,) = wait_for(lambda: [line for line in program.err if line.startswith("Console: ")])
        assert line.startswith("Console: https://hooks.example/console/sign-in/")


def test_a_console_that_is_turned_off_is_not_there(tmp_path: Path) -> None:
    with serving(tmp_path, environment={"DOORSTEP_CONSOLE": "false"}) as program:
        for path in ("/", "/console", "/console/sign-in", "/console/events"):
            assert program.get(path).status == 404
        assert program.get("/v1/events").status == 200
        refused = program.post("/v1/sign-in-links")
        assert (refused.status, "DOORSTEP_CONSOLE=true" in refused.json["detail"]) == (409, True)
        assert not [line for line in program.err if line.startswith("Console")]


def test_the_command_prints_a_link_that_signs_in_as_its_key(served: Program, remote: Remote) -> None:
    printed = remote("console")
    link = printed.out.strip()
    assert (printed.code, LINK.fullmatch(link) is not None) == (0, True)
    assert "bootstrap" in page(served.url, follow(link))
    assert follow(link).status == 401


def test_in_json_the_link_has_its_end(remote: Remote) -> None:
    answer = remote.json("console")
    assert set(answer) == {"url", "expires_at"}
    assert LINK.fullmatch(answer["url"])


def test_a_viewer_gets_a_link_of_a_viewer_and_a_publisher_gets_none(served: Program, remote: Remote) -> None:
    viewer = follow(remote("console", "--key", add_key(served, Role.VIEWER)).out.strip())
    assert 'class="role">viewer<' in page(served.url, viewer)
    refused = remote("console", "--key", add_key(served, Role.PUBLISHER))
    assert (refused.code, refused.out) == (4, "")


def test_the_command_opens_the_link_where_there_is_a_browser(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert [remote("console", "--open").out.strip()] == opened
    monkeypatch.setattr("typer.launch", lambda _: 1)
    assert "open it yourself" in remote("console", "--open").err


def test_the_demo_has_a_link_too(tmp_path: Path) -> None:
    with running("demo", "--port", "0", "--json", folder=tmp_path) as demo:
        told = json.loads(wait_for(lambda: demo.out)[0])
        assert told["console"].startswith(told["url"])
        assert follow(told["console"]).status == 303
