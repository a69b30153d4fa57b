"""Strange queries, cursors, paths, methods and content types get a 4xx or a normal answer, the same on every store."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from doorstep.api.application import ROUTES
from tests.security.requests import BODIES, unknown_ids
from tests.security.verdicts import same_verdict, verdict_of
from tests.support.program import Program

LISTS = [
    "/v1/events", "/v1/inbox", "/v1/endpoints", "/v1/retry-queue", "/v1/dead-letters", "/v1/dead-letters/groups",
    "/v1/bulk", "/v1/audit", "/v1/keys", "/v1/orgs",
]  # fmt: skip

CURSORS = [
    "", " ", "0", "-1", "1", "a", "A", "null", "None", "0.0", "1.1.1.1.1.1", "..", ".", "0x10", "1e5", "+1", "٣", "１",
    "f" * 15, "f" * 16, "f" * 17, "f" * 32, "f" * 33, "7" + "f" * 15, ".".join(["f" * 32] * 4), "1." + "f" * 32,
    "\x00", "'", "'; DROP TABLE doorstep_events; --", "%", "\ud83d\ude00", "a" * 500, "a" * 501, "a" * 5_000,
    "01890a5d-ac96-774b-bcce-b302099a8057", "eyJhIjoxfQ==", "../../etc/passwd", "\n", "0\n",
]  # fmt: skip


def test_a_cursor_that_no_list_gave_is_refused_or_leads_somewhere_in_the_list(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for path in LISTS:
        with subtests.test(path=path):
            for cursor in CURSORS:
                encoded = quote(cursor.encode("utf-8", "surrogatepass"))
                assert same_verdict(each, "GET", f"{path}?cursor={encoded}").status in (200, 422), cursor


NUMBERS = [
    "", "0", "-1", "1001", "201", "1.0", "1.5", "1e2", "0x10", " 5", "5 ", "+5", "1_0", "٣", "１", "null", "true", "NaN",
    "inf", "9223372036854775807", "9223372036854775808", "9" * 400, "9" * 5_000, "'", "\x00", "5&limit=6",
]  # fmt: skip


def test_a_limit_that_is_none_is_refused(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for path in LISTS:
        with subtests.test(path=path):
            for number in NUMBERS:
                encoded = quote(number, safe="&=")
                assert same_verdict(each, "GET", f"{path}?limit={encoded}").status in (200, 422), number
            for number in ("", "0", "-1", "1001", "1.5", "0x10", "null", "NaN", "9" * 5_000, "5&limit=6"):
                assert same_verdict(each, "GET", f"{path}?limit={number}").status == 422, number


TIMES = [
    "", "null", "0", "0.5", "1", "1e300", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T00:00:00Z",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00+99:99",
    "2026-01-31T12:00:00.1234567890123Z", "２０２６-01-31T12:00:00Z", "\x00", "'",
]  # fmt: skip


BY_TIME = [
    ("/v1/events", "created_from"), ("/v1/events", "created_before"), ("/v1/dead-letters", "died_from"),
    ("/v1/dead-letters", "died_before"),
    *((path, name) for path in ("/v1/events", "/v1/dead-letters") for name in ("since", "until")),
]  # fmt: skip


def test_a_time_that_is_none_is_refused_and_named(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for path, name in BY_TIME:
        with subtests.test(path=path, name=name):
            for time in TIMES:
                verdict = same_verdict(each, "GET", f"{path}?{name}={quote(time)}")
                assert verdict.status == 422 or time in ("2026-01-31T12:00:00.1234567890123Z",), (time, verdict)
                assert verdict.status == 200 or verdict.words.startswith(f"{name}: "), verdict


MEANINGLESS = [
    ("/v1/events", "status=null"), ("/v1/events", "status="), ("/v1/events", "status=FAILED"),
    ("/v1/events", "status=failed,queued"), ("/v1/events", "status=failed&status=queued"),
    ("/v1/events", "STATUS=failed"), ("/v1/events", "status%00=failed"), ("/v1/events", "=x"),
    ("/v1/events", "status[]=failed"), ("/v1/events", "event_type=" + "a" * 201), ("/v1/inbox", "status=queued"),
    ("/v1/inbox", "status=null"), ("/v1/dead-letters", "status=null"), ("/v1/dead-letters", "cause=null"),
    ("/v1/dead-letters", "cause=ffffffffffffffff"), ("/v1/dead-letters", "cause=8000000000000000"),
    ("/v1/dead-letters", "cause=7FFFFFFFFFFFFFFF"), ("/v1/dead-letters", "cause=-000000000000001"),
    ("/v1/dead-letters", "endpoint_id=null"), ("/v1/dead-letters", "endpoint_id=1"),
    ("/v1/retry-queue", "older_than_seconds=NaN"), ("/v1/retry-queue", "older_than_seconds=inf"),
    ("/v1/retry-queue", "older_than_seconds=-1"), ("/v1/retry-queue", "older_than_seconds=1e300"),
    ("/v1/retry-queue", "status=dead"), ("/v1/endpoints", "state=deleted"), ("/v1/endpoints", "state=null"),
    ("/v1/audit", "actor[]=x"), ("/v1/healthz", "x=1"), ("/v1/stats", "x=1"),
]  # fmt: skip


def test_a_filter_that_means_nothing_is_refused_rather_than_ignored(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    """An ignored filter would show everything, although the caller asked for less."""
    for path, query in MEANINGLESS:
        with subtests.test(path=path, query=query[:40]):
            assert same_verdict(each, "GET", f"{path}?{query}").refused


TEXTS = ["\x00", "%", "_", "\\", "'", '"', "*", "**", "a*b", "a%*", "\ud800", "😀", "é", "a b", "a\nb", "a" * 200]


BY_TEXT = [
    ("/v1/events", "event_type"), ("/v1/retry-queue", "event_type"), ("/v1/dead-letters", "event_type"),
    ("/v1/audit", "actor"), ("/v1/audit", "action"), ("/v1/deliveries", "event_type"), ("/v1/deliveries", "error_code"),
    ("/v1/attempts", "event_type"), ("/v1/attempts", "error_code"), ("/v1/batches", "event_type"), ("/v1/find", "id"),
    ("/v1/events", "endpoint"), ("/v1/events", "correlation_id"), ("/v1/events", "ordering_key"),
    ("/v1/events", "idempotency_key"), ("/v1/events", "payload[a]"), ("/v1/events", "metadata[a]"),
]  # fmt: skip


def test_any_text_may_be_asked_for(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for path, name in BY_TEXT:
        with subtests.test(path=path, name=name):
            for text in TEXTS:
                encoded = quote(text.encode("utf-8", "surrogatepass"))
                assert same_verdict(each, "GET", f"{path}?{name}={encoded}").status in (200, 422), text


def test_signs_that_mean_something_to_a_database_mean_themselves_in_a_filter(served: Program) -> None:
    types = ["wild_1.a", "wildx1.a", "wild-1.a", "WILD_1.a"]
    assert served.post("/v1/events/batch", [{"event_type": one, "payload": 1} for one in types]).status == 202

    def found(pattern: str) -> set[str]:
        answer = served.get(f"/v1/events?limit=1000&event_type={quote(pattern)}")
        return {one["event_type"] for one in answer.json["events"]} & set(types)

    assert found("wild_1.*") == {"wild_1.a"}
    assert found("wild_1.a") == {"wild_1.a"}
    assert found("wild%") == set()
    assert found("wild%*") == set()
    assert found("wild*") == {"wild_1.a", "wildx1.a", "wild-1.a"}


# -- paths, methods, content types -----------------------------------------------------------------------------

IDS = [
    "x", "0", "null", "%00", "%ff", "%2e%2e", "..%2f..%2fetc", "%0d%0aX:1", "{event_id}", "*", "a" * 5_000, "%F0%9F%98%80",
    "01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a8057%00", "'%20OR%201=1--",
    "{01890a5d-ac96-774b-bcce-b302099a8057}", "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057",
]  # fmt: skip


def test_an_id_that_is_none_is_answered_like_one_of_nothing(
    each: dict[str, Program], subtests: pytest.Subtests
) -> None:
    for line in (line for line in ROUTES if "{" in line):
        with subtests.test(route=line):
            method, path = line.split(" ")
            for bad in IDS:
                ids = dict.fromkeys(unknown_ids(), bad)
                assert same_verdict(each, method, path.format(**ids), BODIES.get(line)).status == 404, bad


METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"}
PATHS = sorted({line.split(" ")[1] for line in ROUTES})


def test_a_method_that_a_path_does_not_have_is_a_405_that_lists_those_it_has(
    served: Program, subtests: pytest.Subtests
) -> None:
    for path in PATHS:
        with subtests.test(path=path):
            has = {line.split(" ")[0] for line in ROUTES if line.split(" ")[1] == path}
            for method in METHODS - has:
                answer = served.request(method, path.format(**unknown_ids()))
                assert answer.status == 405, (method, answer.body)
                assert set(answer.headers["allow"].split(", ")) == has


TYPES = [
    "text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "", "nonsense", "\xff",
    "application/json; charset=utf-16", "application/json; charset=utf-7", "multipart/form-data; boundary=x",
]  # fmt: skip


def test_a_body_is_read_as_json_whatever_it_calls_itself(each: dict[str, Program], subtests: pytest.Subtests) -> None:
    for kind in TYPES:
        with subtests.test(kind=ascii(kind)):
            headers = {"Content-Type": kind}
            event = b'{"event_type": "a", "payload": 1}'
            key = b'{"name": "\xc3\xa9", "role": "viewer"}'
            form = b"event_type=a&payload=1"
            multipart = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\na\r\n--x--\r\n'
            assert same_verdict(each, "POST", "/v1/events", event, headers=headers).status == 202
            assert same_verdict(each, "POST", "/v1/keys", key, headers=headers).status == 201
            for path in ("/v1/events", "/v1/events/batch", "/v1/keys", "/v1/endpoints"):
                for body in (form, multipart):
                    assert same_verdict(each, "POST", path, body, headers=headers).status == 400


def test_a_compressed_body_is_not_unpacked(each: dict[str, Program]) -> None:
    """A decompression bomb can therefore do no harm."""
    import gzip

    body = gzip.compress(b'{"event_type": "a", "payload": "%b"}' % (b"x" * 10_000_000))
    for name, program in each.items():
        answer = program.post("/v1/events", body, headers={"Content-Encoding": "gzip"})
        assert verdict_of(answer).status == 400, name
