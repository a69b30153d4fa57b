"""Error texts and other libraries' log lines contain neither payload data nor secrets."""

from __future__ import annotations

import logging
import traceback

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from doorstep.errors import StoreUnavailable
from doorstep.telemetry.facts import Fact, Notice
from doorstep.telemetry.logs import NoticeHandler, without
from doorstep.telemetry.redaction import Secrets, passwords_in, safe_message, scrubbed, traceback_of
from tests.support.matrix import each_case


@each_case(
    ("text", "shown"),
    [
        ("cannot reach https://user:word@shop.example/a/b?token=1#x now", "cannot reach https://shop.example/a/b now"),
        ("postgresql://doorstep:word@db:5432/x?password=1", "postgresql://db:5432/x"),
        ("postgresql://doorstep:w/o?r@d@db:5432/x?a=1", "postgresql://***"),
        ("postgresql://doorstep:w@rd@db:5432/x", "postgresql://db:5432/x"),
        ("postgresql://doorstep:word@db:5432/x?a=me@there", "postgresql://***"),
        ("it was cut: postgresql://doorstep:wo", "it was cut: postgresql://***"),
        (
            "see http://[::1]:8080/a and http://b:80?c=1 and http://c:80",
            "see http://[::1]:8080/a and http://b:80 and http://c:80",
        ),
        ("http://10.0.0.5:8080: refused", "http://10.0.0.5:8080: refused"),
        ("(at http://b:80), at http://c:81.", "(at http://b:80), at http://c:81."),
        ("it was cut: postgresql://doorstep:12345x", "it was cut: postgresql://***"),
        ("see https://shop.example/@me?mail=a@b", "see https://shop.example/@me"),
        ("GET /x?password=abc&token=def", "GET /x?password=***&token=***"),
        ("secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "secret whsec_***"),
        ("the key dsk_abcdefghijklmnop is unknown", "the key dsk_*** is unknown"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: ***"),
        ("{'x-api-key': 'abc', 'a': 1}", "{'x-api-key': ***, 'a': 1}"),
        ("sent with Basic dXNlcjp3b3Jk", "sent with Basic ***"),
        ("password=abc&user=me", "password=***&user=me"),
        ("[Errno 98] address ('127.0.0.1', 8080) is in use", "[Errno 98] address ('127.0.0.1', 8080) is in use"),
    ],
)
def test_keys_and_the_private_parts_of_urls_are_left_out_of_any_text(text: str, shown: str) -> None:
    assert scrubbed(text) == shown


def test_errors_that_speak_of_machines_keep_their_words_and_others_only_their_kind() -> None:
    assert (
        safe_message(ConnectionRefusedError(111, "Connection refused"))
        == "ConnectionRefusedError: [Errno 111] Connection refused"
    )
    assert safe_message(StoreUnavailable("PostgreSQL: gone")) == "StoreUnavailable: PostgreSQL: gone"
    assert safe_message(ValueError("Invalid value 'a payload'")) == "ValueError"
    assert safe_message(KeyError("a payload")) == "KeyError"
    assert (
        safe_message(type("DataError", (Exception,), {"sqlstate": "22000"})("$1: b'a payload'")) == "DataError (22000)"
    )


def test_a_traceback_shows_lines_and_kinds_over_the_whole_chain_but_no_values() -> None:
    def read(payload: str) -> None:
        try:
            int(payload)
        except ValueError as error:
            raise RuntimeError("about " + payload) from error

    with pytest.raises(RuntimeError) as caught:
        read("c4n4" + "ry")  # split, because a traceback may show source lines
    shown = traceback_of(caught.value)
    assert shown.startswith("Traceback (most recent call last):\n  File ")
    assert "int(payload)" in shown
    assert shown.index("ValueError") < shown.index("which led to:") < shown.index("RuntimeError")
    assert "c4n4ry" not in shown


def test_an_error_that_is_its_own_cause_has_a_traceback_with_an_end() -> None:
    error = RuntimeError()
    error.__cause__ = ValueError()
    error.__cause__.__cause__ = error
    assert traceback_of(error).count("RuntimeError") == 1


def test_the_secrets_of_the_process_are_hidden_in_texts_wherever_they_come_from() -> None:
    secrets = Secrets(["the-admin-key", 'a"quoted"one', None, "p%40ssword", "7 chars"])
    fields = {"a": "the-admin-key", "b": ['a"quoted"one', 5, None], "c": "p@ssword p%40ssword", "d": "7 chars"}
    assert secrets.hidden_in(fields) == {"a": "***", "b": ["***", 5, None], "c": "*** ***", "d": "7 chars"}
    assert secrets.hidden_in(ValueError("the-admin-key")) == "***"
    assert secrets.found_in(b'{"b":"a\\"quoted\\"one"}') and not secrets.found_in(b'{"d":"7 chars"}')


TRACEBACK = """Traceback (most recent call last):
  File "/srv/doorstep/shop.py", line 7, in open_doorstep
    doorstep.open("doorstep", word='doorstep'
    ~~~~~~~~^^^^^
doorstep.errors.Refused: doorstep is wrong
doorstep: and so it is
    doorstep"""


def test_a_secret_that_is_a_word_changes_no_name_in_a_traceback_but_is_hidden_wherever_it_is_a_value() -> None:
    fact = Notice(at="", level="error", message="m", fields={"traceback": TRACEBACK, "other": "doorstep"})
    hidden = without(fact, Secrets(["doorstep"]))
    assert isinstance(hidden, Notice)
    assert hidden.fields["other"] == "***"
    assert (
        hidden.fields["traceback"]
        == """Traceback (most recent call last):
  File "/srv/doorstep/shop.py", line 7, in open_doorstep
    doorstep.open("***", word='***'
    ~~~~~~~~^^^^^
doorstep.errors.Refused: *** is wrong
***: and so it is
    ***"""
    )


_WORDS = st.text(st.characters(codec="utf-8"), max_size=60)


@given(secret=st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=8), before=_WORDS, after=_WORDS)
def test_no_secret_in_the_text_of_an_exception_is_ever_shown(secret: str, before: str, after: str) -> None:
    try:
        raise RuntimeError(before + secret + after)
    except RuntimeError as error:
        text = "".join(traceback.format_exception(error))
    assume("*" not in secret and secret not in "RuntimeError: ")
    frames = text.partition("RuntimeError: ")[0]
    shown = Secrets([secret]).hidden_in_traceback(text)
    assert shown.startswith(frames + "RuntimeError: ")
    assert secret not in shown.removeprefix(frames)


@each_case(
    ("url", "passwords"),
    [
        ("postgresql://u:w%40rd@db/x", ["w%40rd"]),
        ("postgresql://u:w@rd@db/x", ["w@rd"]),
        ("postgresql://u:w/o?r@d@db/x", ["w/o?r@d"]),
        ("postgresql://db/x?user=u&password=w%26rd+1", ["w&rd+1"]),
        ("postgresql://u:one@db/x?sslpassword=two&sslmode=require", ["one", "two"]),
        ("postgresql://app:s3cret@db/x?application_name=a@b", ["s3cret", "s3cret@db/x?application_name=a"]),
        ("postgresql://u@db/x", []),
        ("postgresql://u@db:5432/x?application_name=a:b@c", []),
        ("postgresql://db:5432/x", []),
        ("sqlite:///data/a.db", []),
    ],
)
def test_the_passwords_of_a_database_are_found_in_its_url(url: str, passwords: list[str]) -> None:
    assert list(passwords_in(url)) == passwords


# -- log records of other libraries ----------------------------------------------------------------------------


def told_of(logger: str, message: str, *arguments: object, error: BaseException | None = None) -> Notice:
    facts: list[Fact] = []
    handler = NoticeHandler(facts.extend)
    exc_info = (type(error), error, error.__traceback__) if error else None
    handler.emit(logging.LogRecord(logger, logging.ERROR, "", 1, message, arguments, exc_info))
    (notice,) = facts
    assert isinstance(notice, Notice)
    return notice


def test_asyncio_s_calls_and_tasks_are_named_without_their_arguments() -> None:
    assert told_of("asyncio", "Exception in callback Shop.pay(b'c4n4ry')\nhandle: <Handle c4n4ry>").message == (
        "Exception in callback Shop.pay"
    )
    assert told_of("asyncio", "Task exception was never retrieved\nfuture: <Task c4n4ry>").message == (
        "Task exception was never retrieved"
    )


def test_other_libraries_are_heard_in_one_scrubbed_line() -> None:
    notice = told_of(
        "uvicorn.error", "cannot load %s\nc4n4ry", "https://a:c4n4ry@b/?c4n4ry", error=ValueError("c4n4ry")
    )
    assert notice.message == "cannot load https://b/"
    assert notice.fields == {"logger": "uvicorn.error", "traceback": "ValueError\n"}


def test_a_line_of_ours_about_a_request_has_its_correlation_id() -> None:
    facts: list[Fact] = []
    record = logging.LogRecord("doorstep.api", logging.ERROR, "", 1, "a request failed", (), None)
    record.correlation_id = "order-17"
    NoticeHandler(facts.extend).emit(record)
    assert isinstance(facts[0], Notice) and facts[0].fields["correlation_id"] == "order-17"
