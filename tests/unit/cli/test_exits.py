"""Every error becomes one sentence and a code that scripts can rely on."""

from __future__ import annotations

import pytest

from doorstep import client, errors
from doorstep.cli.commands import ExitCode, exit_code_of
from doorstep.cli.main import EXIT_CODES_HELP
from doorstep.client.errors import Answer, error_for


def failing(error: BaseException) -> int:
    def run() -> None:
        raise error

    return exit_code_of(run)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.USAGE),
        (413, ExitCode.USAGE),
        (422, ExitCode.USAGE),
        (401, ExitCode.REFUSED),
        (403, ExitCode.REFUSED),
        (409, ExitCode.REFUSED),
        (404, ExitCode.NOT_FOUND),
        (429, ExitCode.UNREACHABLE),
        (503, ExitCode.UNREACHABLE),
        (500, ExitCode.FAILED),
    ],
)
def test_each_refusal_of_the_server_has_its_code(status: int, code: ExitCode) -> None:
    problem = b'{"type": "x", "title": "No", "status": %d, "detail": "because"}' % status
    assert failing(error_for(Answer(status, {}, problem))) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), ExitCode.USAGE),
        (errors.InvalidInput("field", "x"), ExitCode.USAGE),
        (errors.NotFound("x"), ExitCode.NOT_FOUND),
        (errors.Conflict("x"), ExitCode.REFUSED),
        (errors.StoreUnavailable("x"), ExitCode.UNREACHABLE),
        (client.Unreachable("x"), ExitCode.UNREACHABLE),
        (client.UnexpectedAnswer("x"), ExitCode.FAILED),
        (errors.DoorstepError("x"), ExitCode.FAILED),
        (ZeroDivisionError("x"), ExitCode.FAILED),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_code(error: BaseException, code: int) -> None:
    assert failing(error) == code


def test_an_error_is_one_sentence_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    failing(errors.Conflict("the delivery is in progress"))
    assert capsys.readouterr() == ("", "doorstep: the delivery is in progress\n")


def test_an_unforeseen_error_shows_its_traceback_only_to_those_who_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(ZeroDivisionError("x"))
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("DOORSTEP_LOG_LEVEL", "debug")
    failing(ZeroDivisionError("x"))
    assert "Traceback" in capsys.readouterr().err


def test_what_went_well_is_zero() -> None:
    assert exit_code_of(lambda: None) == 0
    assert exit_code_of(lambda: 4) == 4


def test_every_code_is_in_the_help() -> None:
    assert [code for code in ExitCode if f"{code.value} " not in EXIT_CODES_HELP] == []
