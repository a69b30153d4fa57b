"""Settings: one table that feeds validation, the command line's help and docs/reference/settings.md.

A value comes from an argument, else from `DOORSTEP_<NAME>`, else from a line in `doorstep.toml`, else it is the
default. What is unknown or out of bounds stops the start with one sentence (ConfigError): a setting that is
silently ignored is found out months later, by whoever relied on it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from doorstep.config_errors import PREFIX, TOML_FILE, rule, sentence, unknown_variable, variable
from doorstep.errors import ConfigError
from doorstep.telemetry.redaction import Secrets, passwords_in

LEASE_SLACK_SECONDS = 1.0
"""What a lease must leave after the last moment of an attempt, for the result to be written."""

_MAIL_URL = re.compile(r"(smtps?|smtp\+starttls)://([^\s/@]*@)?[^\s/@:?#]+(:[0-9]{1,5})?/?")
_SEALING_KEY = re.compile(r"[A-Za-z0-9+/_-]{43}=")
KIB = 1024
MIB = 1024 * KIB


def _setting(default: Any, rule: str, about: str, **bounds: Any) -> Any:
    """A row of the table: the rule completes the sentence "<name> must be …"."""
    return Field(default, description=about, json_schema_extra={"rule": rule}, **bounds)


class Settings(BaseSettings):
    """Every setting, checked. Making one reads the environment and doorstep.toml; arguments win over both."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        toml_file=TOML_FILE,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    database_url: str = _setting(
        "sqlite:///data/doorstep.db",
        "a URL that begins with sqlite:///, postgresql:// or memory://",
        "Where everything is kept. `sqlite:///relative.db`, `sqlite:////absolute.db`, or `postgresql://user@host/name`.",
        pattern=r"^(sqlite:///.+|postgres(ql)?://.+|memory://)$",
    )
    host: str = _setting("127.0.0.1", "a host name or an address", "The address to listen at.", min_length=1)
    port: int = _setting(
        8080, "a whole number from 0 to 65535", "The port to listen at; 0 takes a free one.", ge=0, le=65535
    )
    admin_key: SecretStr | None = _setting(
        None,
        "8 to 200 visible ASCII characters",
        "The bootstrap key of the default organization. Without it one is made on the first start of `serve` or `worker`, and shown once. Once "
        "revoked it stays so: a start says that it is, and goes on.",
        min_length=8,
        max_length=200,
    )
    secret_key: SecretStr | None = _setting(
        None,
        "the base64 form of 32 bytes",
        "Encrypts secrets at rest. The embedded store makes one on its first start and keeps it beside its data; "
        "all processes that share a PostgreSQL database must be given the same one.",
    )
    allow_addresses: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = _setting(
        (),
        "a list of networks such as 127.0.0.0/8,10.1.2.0/24,::1/128",
        "Networks that deliveries may go to although they are private, loopback or otherwise special.",
    )
    allow_http: bool = _setting(
        False, "true or false", "Let endpoints have plain http URLs outside `allow_addresses` too."
    )
    retry_delays: Annotated[tuple[float, ...], NoDecode] = _setting(
        (60.0, 300.0, 900.0),
        "1 to 100 pauses in seconds from 0 to 2592000, such as 60,300,900",
        "The pauses of the policy `standard`, in seconds: one before each retry.",
        min_length=1,
        max_length=100,
    )
    max_retry_attempts: int = _setting(
        20,
        "a whole number from 0 to 1000",
        "No policy retries more often than this; 0 turns retries off.",
        ge=0,
        le=1000,
    )
    lease_seconds: float = _setting(
        60.0,
        "a number from 1 to 86400",
        "How long a worker holds a delivery that it is trying. After a crash the delivery is due again when it ends.",
        ge=1,
        le=86_400,
    )
    timeout_seconds: float = _setting(
        30.0,
        "a number from 0.1 to 3600",
        "How long one attempt may take in all, from name lookup to the last byte of the answer.",
        ge=0.1,
        le=3600,
    )
    concurrency: int = _setting(
        512, "a whole number from 1 to 10000", "How many attempts one process runs at once.", ge=1, le=10_000
    )
    workers: int = _setting(
        0, "a whole number from 0 to 256", "How many worker processes `doorstep serve` adds to itself.", ge=0, le=256
    )
    grace_seconds: float = _setting(
        20.0,
        "a number from 0 to 600",
        "How long a stop waits for attempts in flight; what is not done then counts as failed and is due again.",
        ge=0,
        le=600,
    )
    retention_days: float = _setting(
        7.0,
        "a number from 0.01 to 36500",
        "Delivered deliveries, their attempts and the history of circuits are removed after this; untouched dead "
        "letters are archived.",
        ge=0.01,
        le=36_500,
    )
    inbox_retention_days: float = _setting(
        30.0,
        "a number from 0.01 to 36500",
        "Events in the inbox that nobody acknowledged are removed after this.",
        ge=0.01,
        le=36_500,
    )
    audit_retention_days: float = _setting(
        365.0, "a number from 0.01 to 36500", "Lines of the audit log are removed after this.", ge=0.01, le=36_500
    )
    entity_retention_days: float = _setting(
        365.0,
        "a number from 0.01 to 36500",
        "Entities of pipelines that have been complete, or archived, for this long are removed with their history; "
        "so are all of a pipeline that no worker has declared for as long, and for 30 days at least.",
        ge=0.01,
        le=36_500,
    )
    minutes_retention_days: float = _setting(
        2.0,
        "a number from 1.1 to 400",
        "For how long statistics are kept minute by minute: those of up to a day are made of them.",
        ge=1.1,
        le=400,
    )
    hours_retention_days: float = _setting(
        400.0,
        "a number from 31 to 36500",
        "For how long statistics are kept hour by hour; sums since ever are always kept.",
        ge=31,
        le=36_500,
    )
    payload_bytes_max: int = _setting(
        256 * KIB, "a whole number from 1024 to 16777216", "The largest payload of one event.", ge=KIB, le=16 * MIB
    )
    batch_bytes_max: int = _setting(
        16 * MIB,
        "a whole number from 1024 to 268435456",
        "The largest request that sends a batch.",
        ge=KIB,
        le=256 * MIB,
    )
    requests_per_second: float = _setting(
        0.0,
        "a number from 0 to 1000000",
        "How many requests one API key may make a second, on each process; 0 sets no limit.",
        ge=0,
        le=1_000_000,
    )
    failed_keys_per_second: float = _setting(
        20.0,
        "a number from 0 to 1000000",
        "How many requests without a valid API key are answered 401 a second to one client address (of IPv6: one /64), "
        "on each process; more get a 429. Valid keys from the same address are let in all the same. 0 sets no limit.",
        ge=0,
        le=1_000_000,
    )
    endpoints_max: int = _setting(
        10_000,
        "a whole number from 1 to 1000000",
        "How many endpoints one organization may have, deleted ones not counted.",
        ge=1,
        le=1_000_000,
    )
    metrics_endpoints: int = _setting(
        0,
        "a whole number from 0 to 1000",
        "For how many endpoints, the busiest ones, `/metrics` has figures of their own, under their names. Everyone who "
        "can reach it can read those.",
        ge=0,
        le=1000,
    )
    alert_retention_days: float = _setting(
        90.0,
        "a number from 0.01 to 36500",
        "Alerts that are over are removed after this, but not before their cooldown is over. Silences that have ended are "
        "kept for a day.",
        ge=0.01,
        le=36_500,
    )
    public_url: str = _setting(
        "",
        "a URL that begins with http:// or https://",
        "Where people reach this installation with a browser: links in alerts lead there. Without it, to `host` and "
        "`port`. Set it in every process, workers too: whichever watches words the alerts.",
        pattern=r"^(https?://[^/?#\s]+(/[^?#\s]*)?)?$",
    )
    console: bool = _setting(
        True, "true or false", "Serve the console, the pages for operators, at `/console`; `false` turns it off."
    )
    smtp_url: SecretStr | None = _setting(
        None,
        "a URL such as smtp+starttls://user:password@mail.example:587 or smtps://mail.example",
        "The mail server for alerts by e-mail. `smtps` begins with TLS, `smtp+starttls` changes to it or sends nothing, "
        "`smtp` changes to it where the server offers it or there is a password. Certificates are checked. The server's "
        "address must be one that deliveries may go to.",
    )
    smtp_from: str = _setting(
        "doorstep@localhost",
        "an e-mail address",
        "Who alerts by e-mail are from.",
        pattern=r"^[!-?A-~]+@[A-Za-z0-9.-]+$",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "one of debug, info, warning, error", "Lines below this level are left out."
    )
    log_format: Literal["auto", "json", "text"] = _setting(
        "auto", "one of auto, json, text", "`auto` writes text on a terminal and JSON lines elsewhere."
    )
    url: str = _setting(
        "http://127.0.0.1:8080",
        "a URL that begins with http:// or https://",
        "The server that commands such as `doorstep send` talk to.",
        pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$",
    )
    api_key: SecretStr | None = _setting(
        None,
        "8 to 256 visible ASCII characters",
        "The key that those commands use; without it, `admin_key`.",
        min_length=8,
        max_length=256,
    )

    def __init__(self, **arguments: Any) -> None:
        if (stranger := unknown_variable(Settings.model_fields)) is not None:
            raise ConfigError(stranger)
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            raise ConfigError(sentence(error.errors(include_url=False)[0], Settings.model_fields, arguments)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{TOML_FILE} cannot be read: {error}; correct or remove it") from None
        _check_lease(self)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("retry_delays", "allow_addresses", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """A list may be written as one text with commas, as it must be in an environment variable."""
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("retry_delays")
    @classmethod
    def _bound_delays(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 <= delay <= 30 * 86_400 for delay in value):
            raise ValueError
        return value

    @field_validator("admin_key", "api_key")
    @classmethod
    def _visible_key(cls, value: SecretStr | None) -> SecretStr | None:
        """It travels in a header, where blanks and other alphabets are mangled on the way."""
        if value is not None and not all("!" <= character <= "~" for character in value.get_secret_value()):
            raise ValueError
        return value

    @field_validator("smtp_url")
    @classmethod
    def _mail_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _MAIL_URL.fullmatch(value.get_secret_value()):
            raise ValueError
        return value

    @field_validator("secret_key")
    @classmethod
    def _sealing_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _SEALING_KEY.fullmatch(value.get_secret_value().strip()):
            raise ValueError
        return value

    @property
    def embedded(self) -> bool:
        """The store is a file (or memory) of this machine, so that its keys can be kept beside it."""
        return not self.database_url.startswith("postgres")

    @property
    def timeout_seconds_max(self) -> float:
        """The longest timeout that any endpoint may ask for under this lease."""
        return self.lease_seconds - LEASE_SLACK_SECONDS


def secrets_of(settings: Settings) -> Secrets:
    """What this process was given and nobody may read in its log."""
    values = (getattr(settings, name) for name in Settings.model_fields)
    given = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    urls = (one for one in (*given, settings.database_url) if "://" in one)
    return Secrets([*given, *(password for url in urls for password in passwords_in(url))])


class SettingRow(NamedTuple):
    """One line of the table of settings, for help texts and documents."""

    name: str
    variable: str
    default: str
    rule: str
    about: str


def setting_rows() -> Iterator[SettingRow]:
    """The table, in the order of the class."""
    for name, field in Settings.model_fields.items():
        yield SettingRow(name, variable(name), _shown_default(field), rule(field), field.description or "")


def setting_row(name: str) -> SettingRow:
    return next(row for row in setting_rows() if row.name == name)


def _check_lease(settings: Settings) -> None:
    if settings.timeout_seconds > settings.timeout_seconds_max:
        raise ConfigError(
            f"lease_seconds must be greater than timeout_seconds by {LEASE_SLACK_SECONDS:g} or more, "
            f"got {settings.lease_seconds:g} and {settings.timeout_seconds:g}; raise the lease or lower the timeout"
        )


def _shown_default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
