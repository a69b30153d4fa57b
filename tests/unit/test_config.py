"""Settings: where their values come from, and how invalid values are refused."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from doorstep.config import PREFIX, Settings, secrets_of, setting_rows
from doorstep.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and an environment without Doorstep variables."""
    monkeypatch.chdir(tmp_path)
    for row in setting_rows():
        monkeypatch.delenv(row.variable, raising=False)
    return tmp_path


def refusal(**arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Settings(**arguments)
    return str(caught.value)


def test_an_argument_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().port == 8080
    (folder / "doorstep.toml").write_text("port = 1001\n")
    assert Settings().port == 1001
    monkeypatch.setenv("DOORSTEP_PORT", "1002")
    assert Settings().port == 1002
    assert Settings(port=1003).port == 1003


def test_lists_are_written_with_commas_in_variables_and_as_lists_or_text_in_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOORSTEP_RETRY_DELAYS", "60, 300,900")
    monkeypatch.setenv("DOORSTEP_ALLOW_ADDRESSES", "127.0.0.0/8,::1/128")
    settings = Settings()
    assert settings.retry_delays == settings.own_retry_delays == (60, 300, 900)
    assert settings.allow_addresses == (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    monkeypatch.delenv("DOORSTEP_RETRY_DELAYS")
    for line in ("retry_delays = [5, 30.5]", 'retry_delays = "5, 30.5"'):
        (folder / "doorstep.toml").write_text(line)
        assert Settings().retry_delays == (5, 30.5)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOORSTEP_ADMIN_KEY", "")
    monkeypatch.setenv("DOORSTEP_RETRY_DELAYS", "")
    assert Settings().admin_key is None
    assert Settings().own_retry_delays is None


def test_an_unknown_variable_stops_the_start_and_the_likely_one_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOORSTEP_LEASE_SECOND", "10")
    assert (
        refusal() == "DOORSTEP_LEASE_SECOND is not a setting; did you mean DOORSTEP_LEASE_SECONDS? Otherwise unset it"
    )


@pytest.mark.parametrize("line", ["leese_seconds = 10", "[leese_seconds]\nx = 1"])
def test_an_unknown_line_in_the_file_stops_the_start(folder: Path, line: str) -> None:
    (folder / "doorstep.toml").write_text(line)
    assert "leese_seconds is not a setting; did you mean lease_seconds?" in refusal()


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port 8080"])
def test_a_file_that_is_not_toml_stops_the_start(folder: Path, content: bytes) -> None:
    (folder / "doorstep.toml").write_bytes(content)
    assert refusal().startswith("cannot read doorstep.toml: ")


OUT_OF_BOUNDS = [
    ("port", "65536"),
    ("port", "-1"),
    ("port", "http"),
    ("port", "80.5"),
    ("database_url", "mysql://localhost/doorstep"),
    ("database_url", "doorstep.db"),
    ("database_url", "sqlite:///"),
    ("allow_addresses", "10.0.0.0/99"),
    ("allow_addresses", "10.0.0.1/8"),
    ("allow_addresses", "localhost"),
    ("allow_http", "perhaps"),
    ("retry_delays", "60,soon"),
    ("retry_delays", "60,-1"),
    ("retry_delays", "nan"),
    ("retry_delays", "1e9"),
    ("retry_delays", ","),
    ("max_retry_attempts", "-1"),
    ("max_retry_attempts", "1001"),
    ("lease_seconds", "0"),
    ("lease_seconds", "inf"),
    ("lease_seconds", "nan"),
    ("timeout_seconds", "0"),
    ("concurrency", "0"),
    ("workers", "-1"),
    ("grace_seconds", "-1"),
    ("retention_days", "0"),
    ("dead_retention_days", "-1"),
    ("inbox_retention_days", "0"),
    ("audit_retention_days", "36501"),
    ("payload_bytes_max", "10"),
    ("batch_bytes_max", "10"),
    ("log_level", "loud"),
    ("log_format", "xml"),
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_BOUNDS)
def test_a_value_out_of_bounds_is_refused_with_its_name_its_rule_what_was_seen_and_where_to_change_it(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = next(row.rule for row in setting_rows() if row.name == name)
    variable = PREFIX + name.upper()
    monkeypatch.setenv(variable, value)
    assert refusal() == f"{name} must be {rule}, got {value!r}; change {variable}"


def test_the_sentence_says_where_the_value_came_from(folder: Path) -> None:
    assert refusal(port=-1).endswith("change the argument port")
    (folder / "doorstep.toml").write_text("port = -1")
    assert refusal().endswith("got -1; change the line port in doorstep.toml")


@pytest.mark.parametrize("variable", ["DOORSTEP_ADMIN_KEY", "DOORSTEP_SECRET_KEY"])
@pytest.mark.parametrize("value", ["c4n4ry", "c4n4ry \x01 b"])
def test_the_value_of_a_secret_is_never_shown(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    sentence = refusal()
    assert variable in sentence
    assert "c4n4ry" not in sentence


def test_a_secret_is_not_shown_when_the_settings_are_printed() -> None:
    settings = Settings(admin_key="c4n4ry-c4n4ry")
    assert "c4n4ry" not in repr(settings) + str(settings)


def test_the_password_in_a_database_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOORSTEP_DATABASE_URL", "mysql://me:c4n4ry@db/doorstep")
    assert "c4n4ry" not in refusal()


@pytest.mark.parametrize("password", ["pa/ss", "pa@ss", "pa?ss", "pa#ss", "p@a/s?s"])
def test_no_sign_in_a_password_lets_a_part_of_it_be_shown(password: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(database_url=f"oracle://user:{password}@db/x?password={password}")
    assert str(refused.value).partition("got ")[2].startswith("'oracle://***'")


def test_the_log_is_kept_free_of_all_passwords_that_settings_have() -> None:
    url = "postgresql://user:in-the-front@db/x?password=at-the-end"
    settings = Settings(database_url=url, smtp_url="smtps://user:of-the-mail@mail.example", admin_key="an-admin-key")
    said = "in-the-front at-the-end of-the-mail an-admin-key"
    assert secrets_of(settings).hidden_in(said) == "*** *** *** ***"


@pytest.mark.parametrize(("lease", "timeout"), [(10, 30), (30, 30), (30.5, 30)])
def test_a_lease_that_an_attempt_could_outlast_is_refused(lease: float, timeout: float) -> None:
    sentence = refusal(lease_seconds=lease, timeout_seconds=timeout)
    assert sentence == (
        f"lease_seconds must be greater than timeout_seconds by 1 or more, got {lease:g} and {timeout}; "
        "raise the lease or lower the timeout"
    )
    assert Settings(lease_seconds=31, timeout_seconds=30).timeout_seconds_max == 30


def test_settings_cannot_be_changed_once_made() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


def test_every_setting_has_a_rule_and_a_description() -> None:
    for row in setting_rows():
        assert row.rule and row.about, row.name


def test_every_named_setting_of_the_requirements_exists() -> None:
    known = {row.variable for row in setting_rows()}
    assert {
        "DOORSTEP_DATABASE_URL", "DOORSTEP_HOST", "DOORSTEP_PORT", "DOORSTEP_ADMIN_KEY", "DOORSTEP_SECRET_KEY",
        "DOORSTEP_ALLOW_ADDRESSES", "DOORSTEP_ALLOW_HTTP", "DOORSTEP_RETRY_DELAYS", "DOORSTEP_MAX_RETRY_ATTEMPTS",
        "DOORSTEP_LEASE_SECONDS", "DOORSTEP_TIMEOUT_SECONDS", "DOORSTEP_RETENTION_DAYS", "DOORSTEP_LOG_LEVEL",
        "DOORSTEP_LOG_FORMAT",
    } <= known  # fmt: skip


def test_the_defaults_of_a_program_are_overridden_by_its_variables_and_these_by_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def delays() -> tuple[float, ...]:
        return Settings.with_defaults({"retry_delays": (60, 300)}, {"RETRY_DELAYS": "retry_delays"}).retry_delays

    assert delays() == (60, 300)
    monkeypatch.setenv("RETRY_DELAYS", "1,2")
    assert delays() == (1, 2)
    monkeypatch.setenv("DOORSTEP_RETRY_DELAYS", "7")
    assert delays() == (7,)


def test_a_wrong_value_in_a_variable_of_the_program_is_named_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRY_DELAYS", "soon")
    with pytest.raises(ConfigError, match="got 'soon'; change RETRY_DELAYS$"):
        Settings.with_defaults({}, {"RETRY_DELAYS": "retry_delays"})


def test_a_default_of_a_program_for_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="retry_delay is not a setting; did you mean retry_delays"):
        Settings.with_defaults({"retry_delay": (60,)})


def test_a_setting_given_to_a_program_overrides_the_environment_and_its_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOORSTEP_DATABASE_URL", "postgresql://configured.example/orders")
    monkeypatch.setenv("LOG_LEVEL", "error")
    given = Settings.with_defaults(
        {"service_name": "shop", "log_level": "info"}, {"LOG_LEVEL": "log_level"},
        database_url="sqlite:///story.db", log_level="debug",
    )  # fmt: skip
    assert (given.database_url, given.log_level, given.service_name) == ("sqlite:///story.db", "debug", "shop")
    with pytest.raises(ConfigError, match="change the argument host"):
        Settings.with_defaults({}, host=1)
