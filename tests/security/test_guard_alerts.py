"""No channel reaches an address that the operator has not allowed, however the address is written.

A socket listens where the connection would arrive; the control shows that a connection would be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from tests.security.listening import EVERYWHERE, Listener, listening
from tests.security.test_guard import EVERYTHING_ALLOWED, HOSTS, NOTHING_ALLOWED
from tests.support.program import Program, serving, wait_for


@pytest.fixture(scope="module")
def unseen() -> Iterator[Listener]:
    """A listener to which nobody may connect."""
    with listening(EVERYWHERE) as listener:
        yield listener
        assert listener.seen == []


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, unseen: Listener) -> Iterator[Program]:
    mail = {"DOORSTEP_SMTP_URL": f"smtp://localhost:{unseen.port}"}
    with serving(tmp_path_factory.mktemp("strict"), environment=NOTHING_ALLOWED | mail) as program:
        yield program


def _channel(program: Program, kind: str, target: str) -> str:
    answer = program.post("/v1/channels", {"name": kind, "kind": kind, "target": target})
    assert answer.status == 201, answer.body
    return str(answer.json["channel_id"])


def _last_error(program: Program, channel_id: str) -> str | None:
    assert program.post(f"/v1/channels/{channel_id}/test", None).status == 202
    return str(wait_for(lambda: program.get(f"/v1/channels/{channel_id}").json["last_error"]))


def test_no_channel_over_http_can_be_made_to_point_there(
    strict: Program, unseen: Listener, subtests: pytest.Subtests
) -> None:
    """Except by a name, which is checked at the time of the connection."""
    for kind, host in product(("webhook", "slack"), HOSTS):
        with subtests.test(kind=kind, host=ascii(host)):
            answer = strict.post("/v1/channels", {"name": "a", "kind": kind, "target": f"http://{host}:{unseen.port}/"})
            if answer.status == 201:
                assert "BLOCKED" in (_last_error(strict, answer.json["channel_id"]) or "")
            else:
                assert answer.status == 422, answer.body
                assert answer.json["errors"][0]["field"] == "target"
            assert unseen.seen == []


def test_a_mail_server_at_an_address_that_is_not_allowed_is_not_connected_to(strict: Program, unseen: Listener) -> None:
    error = _last_error(strict, _channel(strict, "email", "ops@shop.example"))
    assert error is not None and error.startswith("BLOCKED: The mail server is at ")
    assert unseen.seen == []


def test_apprise_does_not_connect_there_either(strict: Program, unseen: Listener, subtests: pytest.Subtests) -> None:
    for host in ("127.0.0.1", "localhost", "127.1", "[::1]", "0x7f000001"):
        with subtests.test(host=host):
            error = _last_error(strict, _channel(strict, "apprise", f"json://{host}:{unseen.port}/"))
            assert error is not None and error.partition(":")[0] in ("BLOCKED", "REJECTED")
            assert unseen.seen == []


def test_a_redirect_of_an_allowed_receiver_leads_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, unseen: Listener
) -> None:
    """Redirects over HTTP are not followed. Apprise follows them itself, so there the guard checks each connection."""
    there = f"HTTP/1.1 307 There\r\nLocation: http://127.0.0.2:{unseen.port}/\r\nContent-Length: 0\r\n\r\n".encode()
    allowed = {"DOORSTEP_ALLOW_ADDRESSES": "127.0.0.1/32"}
    with (
        listening(answer=there) as redirecting,
        serving(tmp_path_factory.mktemp("one"), environment=allowed) as program,
    ):
        for kind, target in (("webhook", "http"), ("apprise", "json")):
            error = _last_error(program, _channel(program, kind, f"{target}://127.0.0.1:{redirecting.port}/"))
            assert error is not None and error.partition(":")[0] in ("REDIRECT", "BLOCKED")
        assert redirecting.seen
    assert unseen.seen == []


def test_the_control_where_it_is_allowed_every_channel_arrives(tmp_path_factory: pytest.TempPathFactory) -> None:
    with listening(EVERYWHERE) as seen, listening(answer=b"220 hello\r\n", greets=True) as mail:
        settings = EVERYTHING_ALLOWED | {"DOORSTEP_SMTP_URL": f"smtp://127.0.0.1:{mail.port}"}
        with serving(tmp_path_factory.mktemp("open"), environment=settings) as program:
            for kind, target in (
                ("webhook", f"http://127.0.0.1:{seen.port}/hook"),
                ("slack", f"http://127.0.0.1:{seen.port}/slack"),
                ("webhook", f"http://[::1]:{seen.port}/sixth"),
                ("apprise", f"json://127.0.0.1:{seen.port}/apprise"),
                ("apprise", f"json://[::1]:{seen.port}/sixth-apprise"),
                ("email", "ops@shop.example"),
            ):
                channel_id = _channel(program, kind, target)
                assert program.post(f"/v1/channels/{channel_id}/test", None).status == 202
            wanted = (b"POST /hook", b"POST /slack", b"POST /apprise", b"POST /sixth ", b"POST /sixth-apprise")
            wait_for(lambda: all(any(one.startswith(begin) for one in seen.seen) for begin in wanted))
            wait_for(lambda: mail.seen)
