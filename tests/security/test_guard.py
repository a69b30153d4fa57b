"""No request reaches an address that the operator has not allowed, in any spelling and by any path.

Each test has a listening socket where the connection would arrive, and a control that shows that a connection would be
seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.security.listening import EVERYWHERE, Listener, listening
from tests.support.builders import unused
from tests.support.commands import doorstep
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, Program, serving, wait_for

LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "0x7F.1",
    "0177.0x0.1", "00000177.1", "%31%32%37.0.0.1", "127.0.0.1.", "127.255.255.254", "0", "0.0.0.0", "0x0",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0000::ffff:7f00:0001]",
    "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]",
    "[2001:0:7f00:1::]", "localhost", "LOCALHOST", "localhost.", "a.localhost",
]  # fmt: skip
"""Forms of this machine's own address, including some that only a resolver or a network would translate to it."""

PRIVATE = [
    "10.0.0.1", "0xa000001", "012.0.0.1", "172.16.0.1", "192.168.0.1", "3232235521", "100.64.0.1", "169.254.169.254",
    "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
    "[fd00:ec2::254]", "168.63.129.16", "198.18.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255", "[fe80::1]",
    "[fc00::1]", "[ff02::1]", "[2001:db8::1]", "[100::1]",
]  # fmt: skip

NEVER = [
    "user@127.0.0.1", "user:password@127.0.0.1", "shop.example@127.0.0.1", "shop.example:443@127.0.0.1", "@127.0.0.1",
    "127.0.0.1\\@shop.example", "127.0.0.1%00.shop.example", "127.0.0.1%0d%0a", "127.0.0.1%2f@shop.example",
    "①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "ⓛocalhost", "lоcalhost",
    "[::1%25lo]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1", "::1", "127.0.0.256", "127.0.0.0.1", "0x7f00000001",
    "127.0.0.1 ", "127.0.0.1\t", "127.0.0.1\n", "\u200b127.0.0.1", "",
]  # fmt: skip
"""Values that are not a host, or that are refused whatever the operator allows."""
HOSTS = [*LOOPBACK, *PRIVATE, *NEVER]

PATIENT = {"failures_max": 1_000_000}
"""A circuit that stays closed, so that every attempt is made."""
NOTHING_ALLOWED = {"DOORSTEP_ALLOW_ADDRESSES": "", "DOORSTEP_ALLOW_HTTP": "true"}
EVERYTHING_ALLOWED = {"DOORSTEP_ALLOW_ADDRESSES": "0.0.0.0/0,::/0", "DOORSTEP_ALLOW_HTTP": "true"}


@pytest.fixture(scope="module")
def unseen() -> Iterator[Listener]:
    """Listens on every address of this machine, and checks that nobody connects."""
    with listening(EVERYWHERE) as listener:
        yield listener
        assert listener.seen == []


# -- addresses in requests -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serving(tmp_path_factory.mktemp("strict"), environment=NOTHING_ALLOWED) as program:
        yield program


@pytest.fixture(scope="module")
def innocent(strict: Program) -> str:
    answer = strict.post("/v1/endpoints", {"name": "a", "url": "https://shop.example/", "event_types": ["none"]})
    return str(answer.json["endpoint_id"])


def test_no_endpoint_can_be_made_or_changed_to_point_there(
    strict: Program, innocent: str, unseen: Listener, subtests: pytest.Subtests
) -> None:
    for url in (f"{scheme}://{host}:{unseen.port}/" for host in HOSTS for scheme in ("http", "https")):
        with subtests.test(url=ascii(url)):
            made = strict.post("/v1/endpoints", {"name": "a", "url": url})
            changed = strict.request("PATCH", f"/v1/endpoints/{innocent}", {"url": url})
            for answer in (made, changed):
                assert (answer.status, answer.json["errors"][0]["field"]) == (422, "url"), answer.body
            assert strict.get(f"/v1/endpoints/{innocent}").json["url"] == "https://shop.example/"


# -- addresses that were allowed earlier -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def once_allowed(tmp_path_factory: pytest.TempPathFactory, unseen: Listener) -> tuple[Path, dict[str, str]]:
    """An installation whose operator has since tightened the rules: its folder, and its endpoints by host."""
    folder = tmp_path_factory.mktemp("careful")
    with serving(folder, environment=EVERYTHING_ALLOWED) as program:
        answers = {
            host: program.post(
                "/v1/endpoints",
                {
                    "name": host,
                    "url": f"http://{host}:{unseen.port}/",
                    "event_types": [f"for.{number}"],
                    "policy": [],
                    "circuit": PATIENT,
                },
            )
            for number, host in enumerate([*LOOPBACK, *PRIVATE])
        }
        assert {host: answer.status for host, answer in answers.items()} == dict.fromkeys(answers, 201)
    return folder, {host: answer.json["endpoint_id"] for host, answer in answers.items()}


@pytest.fixture(scope="module")
def careful(once_allowed: tuple[Path, dict[str, str]]) -> Iterator[Program]:
    with serving(once_allowed[0], environment=NOTHING_ALLOWED) as program:
        yield program


def test_nothing_is_ever_sent_there_by_any_of_the_paths(
    careful: Program, once_allowed: tuple[Path, dict[str, str]], unseen: Listener
) -> None:
    """An event, a test, a replay, a retry of the event and a retry of the dead letter; to all hosts together."""
    endpoints = once_allowed[1].values()
    event = {"event_type": "a", "payload": 1}
    sent = {one: post(careful, "/v1/events", event | {"endpoint_ids": [one]})["event_id"] for one in endpoints}
    letters = [blocked(careful, event_id) for event_id in sent.values()]
    made = [post(careful, f"/v1/endpoints/{one}/test", None)["event_id"] for one in endpoints]
    made += [post(careful, f"/v1/events/{sent[one]}/replay", {"endpoint_id": one})["event_id"] for one in endpoints]
    for event_id in made:
        blocked(careful, event_id)
        post(careful, f"/v1/events/{event_id}/retry", {"reason": "again"})
    for delivery_id in letters:
        post(careful, f"/v1/dead-letters/{delivery_id}/retry", None)
    for event_id in (*made, *sent.values()):
        blocked(careful, event_id, tries=2)
    assert unseen.seen == []


def test_a_replay_of_the_past_is_not_sent_there_either(
    careful: Program, once_allowed: tuple[Path, dict[str, str]], unseen: Listener
) -> None:
    event_id = post(careful, "/v1/events", {"event_type": "of.the.past", "payload": 1})["event_id"]
    span = {"created_from": "2020-01-01T00:00:00Z", "created_before": "2100-01-01T00:00:00Z"}
    span["event_type"] = "of.the.past"
    bulk = post(careful, f"/v1/endpoints/{once_allowed[1]['127.0.0.1']}/replay", span)
    wait_for(lambda: careful.get(f"/v1/bulk/{bulk['bulk_id']}").json["state"] == "finished")
    events = careful.get("/v1/events?event_type=of.the.past").json["events"]
    copies = [one["event_id"] for one in events if one["event_id"] != event_id]
    assert copies
    for copy in copies:
        blocked(careful, copy)
    assert unseen.seen == []


def test_doctor_does_not_connect_there(once_allowed: tuple[Path, dict[str, str]], unseen: Listener) -> None:
    folder, endpoints = once_allowed
    environment = NOTHING_ALLOWED | {"DOORSTEP_PORT": str(free_port()), "DOORSTEP_ADMIN_KEY": ADMIN_KEY}
    found = [one for one in doctor(folder, environment) if one["check"] == "endpoint"]
    assert len(found) == len(endpoints)
    assert [one for one in found if one["verdict"] == "ok"] == []
    assert unseen.seen == []


def test_the_control_the_listener_sees_what_is_allowed(tmp_path: Path) -> None:
    """Uses the same ways to send (event, test, doctor) with both kinds of addresses."""
    environment = EVERYTHING_ALLOWED | {"DOORSTEP_PORT": str(free_port()), "DOORSTEP_ADMIN_KEY": ADMIN_KEY}
    with listening(EVERYWHERE) as listener:
        with serving(tmp_path, environment=environment) as program:
            for host in ("0x7f.1", "[::1]"):
                endpoint = {"name": host, "url": f"http://{host}:{listener.port}/", "event_types": ["a"]}
                endpoint_id = post(program, "/v1/endpoints", endpoint)["endpoint_id"]
            post(program, "/v1/events", {"event_type": "a", "payload": 1})
            wait_for(lambda: len(listener.seen) == 2)
            post(program, f"/v1/endpoints/{endpoint_id}/test", None)
            wait_for(lambda: len(listener.seen) == 3)
        doctor(tmp_path, environment)
        wait_for(lambda: len(listener.seen) == 5)


# -- redirects and proxies -------------------------------------------------------------------------------------

LEADING = {
    "301": b"HTTP/1.1 301 Moved Permanently\r\nLocation: http://127.0.0.1:%d/\r\n",
    "302": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\n",
    "303": b"HTTP/1.1 303 See Other\r\nLocation: http://127.0.0.1:%d/\r\n",
    "307": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:%d/\r\n",
    "308": b"HTTP/1.1 308 Permanent Redirect\r\nLocation: //127.0.0.1:%d/\r\n",
    "300 and a link": b"HTTP/1.1 300 Multiple Choices\r\nLocation: http://127.0.0.1:%d/\r\nLink: <http://127.0.0.1/>\r\n",
    "305": b"HTTP/1.1 305 Use Proxy\r\nLocation: http://127.0.0.1:%d/\r\n",
    "a refresh": b'HTTP/1.1 200 OK\r\nRefresh: 0; url=http://127.0.0.1:%d/\r\nAlt-Svc: http/1.1="127.0.0.1:%d"\r\n',
}


def test_a_receiver_cannot_lead_anywhere_else(served: Program, unseen: Listener, subtests: pytest.Subtests) -> None:
    for name, leading in LEADING.items():
        with subtests.test(by=name):
            ports = (unseen.port,) * leading.count(b"%d")
            answer = leading % ports + b"Content-Length: 0\r\nConnection: close\r\n\r\n"
            with listening(answer=answer) as receiver:
                endpoint = {"name": unused("a"), "url": f"http://127.0.0.1:{receiver.port}/", "event_types": ["none"]}
                endpoint_id = post(served, "/v1/endpoints", endpoint)["endpoint_id"]
                event_id = post(served, f"/v1/endpoints/{endpoint_id}/test", None)["event_id"]
                settled(served, event_id)
                assert len(receiver.seen) == 1
            assert unseen.seen == []


def test_a_proxy_of_the_environment_is_not_used(tmp_path: Path, unseen: Listener) -> None:
    proxy = f"http://127.0.0.1:{unseen.port}"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    with listening() as receiver, serving(tmp_path, environment=dict.fromkeys(names, proxy)) as program:
        endpoint = {"name": unused("a"), "url": f"http://127.0.0.1:{receiver.port}/", "event_types": ["a"]}
        post(program, "/v1/endpoints", endpoint)
        post(program, "/v1/events", {"event_type": "a", "payload": 1})
        wait_for(lambda: receiver.seen)
    assert unseen.seen == []


def post(program: Program, path: str, body: object) -> Any:
    answer = program.post(path, body)
    assert answer.status in (200, 201, 202), answer.body
    return answer.json


def settled(program: Program, event_id: str) -> None:
    wait_for(lambda: program.get(f"/v1/events/{event_id}/status").json["status"] in ("failed", "delivered"))


def blocked(program: Program, event_id: str, tries: int = 1) -> str:
    """The event's only delivery, after the guard has refused `tries` attempts."""

    def delivery() -> Any:
        (found,) = program.get(f"/v1/events/{event_id}").json["deliveries"]
        return found if found["attempts"] == tries and found["state"] == "dead" else None

    found = wait_for(delivery, lambda: str(program.get(f"/v1/events/{event_id}").json["deliveries"]))
    attempts = program.get(f"/v1/deliveries/{found['delivery_id']}/attempts").json["attempts"]
    assert {attempt["error_code"] for attempt in attempts} == {"BLOCKED"}
    return str(found["delivery_id"])


def doctor(folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = doorstep("doctor", "--json", folder=folder, environment=environment).lines[0][
        "checks"
    ]
    return checks
