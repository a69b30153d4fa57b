"""Settings: one table that feeds validation, the command line's help and docs/reference/settings.md.

A value comes from an argument, else from `DOORSTEP_<NAME>`, else from a line in `doorstep.toml`, else from the default.
Doorstep refuses to start with an unknown or invalid setting (ConfigError). If it ignored the setting instead, users who
rely on that setting might find out only months later.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from doorstep.errors import ConfigError
from doorstep.telemetry.redaction import Secrets, passwords_in, shown_url

PREFIX = "DOORSTEP_"
TOML_FILE = "doorstep.toml"
LEASE_SLACK_SECONDS = 1.0
"""A lease must be longer than an attempt's timeout by at least this much, so that there is time to write the result."""

_VISIBLE = re.compile(r"[!-~]*")
"""The characters allowed in API keys. Keys are sent in a header, where spaces and non-ASCII characters do not
survive."""
_SECRET_FORMATS = {
    "admin_key": _VISIBLE,
    "api_key": _VISIBLE,
    "secret_key": re.compile(r"\s*[A-Za-z0-9+/_-]{43}=\s*"),
    "smtp_url": re.compile(r"(smtps?|smtp\+starttls)://([^\s/@]*@)?[^\s/@:?#]+(:[0-9]{1,5})?/?"),
}
"""The formats of secret settings. Pydantic cannot apply patterns to them."""
KIB = 1024
MIB = 1024 * KIB


def _setting(default: Any, rule: str, about: str, **bounds: Any) -> Any:
    """A row of the table. The rule completes the sentence "<name> must be …"."""
    return Field(default, description=about, json_schema_extra={"rule": rule}, **bounds)


def _number(default: float, bounds: tuple[float, float], about: str) -> Any:
    """A row for a number within inclusive bounds. If the default is a whole number, the setting must be one too."""
    low, high = bounds
    kind = "a whole number" if isinstance(default, int) else "a number"
    return _setting(default, f"{kind} from {low} to {high}", about, ge=low, le=high)


class Settings(BaseSettings):
    """All settings, validated. The constructor reads the environment and doorstep.toml; its arguments override both."""

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
        "a URL that begins with sqlite:///, postgresql://, dynamodb:// or memory://",
        "The database. `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user@host/name`, or "
        "`dynamodb://TABLE?region=eu-central-1&queue=NAME`.",
        pattern=r"^(sqlite:///.+|postgres(ql)?://.+|dynamodb://.+|memory://)$",
    )
    host: str = _setting("127.0.0.1", "a host name or an address", "The address to listen on.", min_length=1)
    port: int = _number(8080, (0, 65535), "The port to listen on; 0 picks a free one.")
    admin_key: SecretStr | None = _setting(
        None,
        "8 to 200 visible ASCII characters",
        "The first admin key of the default organization. If it is not set, the first start of `serve` or `worker` creates "
        "one and shows it once. If it has been revoked, it stays revoked, and each start logs a warning.",
        min_length=8,
        max_length=200,
    )
    secret_key: SecretStr | None = _setting(
        None,
        "the base64 form of 32 bytes",
        "Encrypts secrets at rest. With SQLite, the first start creates one and stores it beside the data. With PostgreSQL, "
        "set the same key for all processes.",
    )
    allow_addresses: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = _setting(
        (),
        "a list of networks such as 127.0.0.0/8,10.1.2.0/24,::1/128",
        "Private, loopback and other special networks that deliveries may go to.",
    )
    allow_http: bool = _setting(
        False, "true or false", "Allow plain http URLs of endpoints outside `allow_addresses` too."
    )
    retry_delays: Annotated[tuple[float, ...], NoDecode] = _setting(
        (5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, 86400.0),
        "1 to 100 delays in seconds from 0 to 2592000, such as 60,300,900",
        "The delays of the policy `standard`, in seconds: one before each retry. If they are set, the policy has no "
        "`retry_on_recovery`.",
        min_length=1,
        max_length=100,
    )
    max_retry_attempts: int = _number(
        20, (0, 1000), "The maximum number of retries of any policy; 0 turns retries off."
    )
    circuits: bool = _setting(
        True, "true or false", "Use circuit breakers. An endpoint can be excluded with `circuit.enabled`."
    )
    lease_seconds: float = _number(
        60.0,
        (1, 86_400),
        "How long a worker owns a delivery that it has claimed. After a crash, the delivery is due again when the lease ends.",
    )
    timeout_seconds: float = _number(
        30.0,
        (0.1, 3600),
        "How long one attempt may take in total, from the DNS lookup to the last byte of the response.",
    )
    concurrency: int = _number(512, (1, 10_000), "How many attempts one process runs at the same time.")
    workers: int = _number(
        0, (0, 256), "How many worker processes `doorstep serve` starts in addition to its own worker."
    )
    grace_seconds: float = _number(
        20.0,
        (0, 600),
        "How long a shutdown waits for attempts in flight. Attempts that take longer count as failed and are due again.",
    )
    retention_days: float = _number(
        7.0,
        (0.01, 36_500),
        "How long to keep delivered deliveries, their attempts and the history of circuits. Dead letters that nobody has "
        "acted on are archived after the same period.",
    )
    dead_retention_days: float = _number(
        0.0,
        (0, 36_500),
        "How long to keep dead letters, archived or not, with their attempts and history; 0 keeps them until somebody acts "
        "on them.",
    )
    inbox_retention_days: float = _number(
        30.0, (0.01, 36_500), "How long to keep events in the inbox that nobody acknowledged."
    )
    audit_retention_days: float = _number(365.0, (0.01, 36_500), "How long to keep entries of the audit log.")
    entity_retention_days: float = _number(
        365.0,
        (0.01, 36_500),
        "How long to keep completed and archived pipeline entities, with their history. If no worker has declared a "
        "pipeline for this long, and for at least 30 days, all its entities are removed.",
    )
    minutes_retention_days: float = _number(
        2.0, (1.1, 400), "How long to keep per-minute statistics. Reports of up to a day are made from them."
    )
    hours_retention_days: float = _number(
        400.0, (31, 36_500), "How long to keep per-hour statistics. Totals are always kept."
    )
    payload_bytes_max: int = _number(256 * KIB, (KIB, 16 * MIB), "The maximum size of an event's payload.")
    batch_bytes_max: int = _number(
        16 * MIB, (KIB, 256 * MIB), "The maximum size of a request that sends several events."
    )
    requests_per_second: float = _number(
        0.0, (0, 1_000_000), "How many requests per second one API key may make to each process; 0 sets no limit."
    )
    failed_keys_per_second: float = _number(
        20.0,
        (0, 1_000_000),
        "How many requests per second one client address (for IPv6, one /64) may make to each process without a valid "
        "API key. They get a 401, and further requests get a 429. Requests with a valid key are not affected. 0 sets "
        "no limit.",
    )
    send_wait_seconds: float = _number(
        0.3,
        (0, 60),
        "How long a request that sends events may wait for others. If more requests arrive than the server can answer in "
        "this time, it refuses the rest with 429 and `Retry-After`. 0 refuses none.",
    )
    connections_max: int = _number(
        0,
        (0, 1_000_000),
        "How many connections the server keeps open. Beyond that, connections that have shown no valid key are closed, "
        "oldest first; if there are none, new connections may only ask for the health. 0 stands for the limit on open "
        "files, less a reserve for deliveries and the database.",
    )
    keyless_connections_max: int = _number(
        256,
        (0, 1_000_000),
        "How many connections that have shown no valid key one client address (for IPv6, one /64) may keep open for "
        "longer than `header_timeout_seconds`; the oldest are closed. 0 sets no limit.",
    )
    header_timeout_seconds: float = _number(
        20.0,
        (0.1, 3600),
        "How long the server waits for the headers of a request, or for the first byte of a connection.",
    )
    body_timeout_seconds: float = _number(
        30.0,
        (0.1, 3600),
        "How long the server waits for the next part of a body, or for a client to read the next part of a response. A "
        "body must also arrive with at least 10 KiB per second, not counting this time.",
    )
    idle_timeout_seconds: float = _number(
        60.0, (0.1, 86_400), "How long the server keeps a connection open between two requests."
    )
    endpoints_max: int = _number(
        10_000, (1, 1_000_000), "How many endpoints one organization may have, not counting deleted ones."
    )
    metrics_endpoints: int = _number(
        0,
        (0, 1000),
        "How many of the busiest endpoints `/metrics` reports separately, by name. Everyone who can reach `/metrics` can "
        "read these names.",
    )
    alert_retention_days: float = _number(
        90.0,
        (0.01, 36_500),
        "How long to keep alerts that have ended. They are kept at least until their cooldown is over. Silences that have "
        "ended are kept for a day.",
    )
    public_url: str = _setting(
        "",
        "a URL that begins with http:// or https://",
        "The URL of this installation for browsers, used in the links of alerts. The default is built from `host` and "
        "`port`. Set it for every process, including workers, because any of them may send alerts.",
        pattern=r"^(https?://[^/?#\s]+(/[^?#\s]*)?)?$",
    )
    console: bool = _setting(True, "true or false", "Serve the console, a web interface for operators, at `/console`.")
    smtp_url: SecretStr | None = _setting(
        None,
        "a URL such as smtp+starttls://user:password@mail.example:587 or smtps://mail.example",
        "The mail server for alerts by e-mail. `smtps` uses TLS from the start; `smtp+starttls` requires STARTTLS; `smtp` "
        "uses STARTTLS if the server offers it, and requires it if there is a password. Certificates are verified. The "
        "server's address must be one that deliveries are allowed to reach.",
    )
    smtp_from: str = _setting(
        "doorstep@localhost",
        "an e-mail address",
        "The sender address of alerts by e-mail.",
        pattern=r"^[!-?A-~]+@[A-Za-z0-9.-]+$",
    )
    service_name: str = _setting(
        "doorstep",
        "1 to 100 letters, digits and the characters _ . -",
        "The name of this service in the field `service` of log lines.",
        pattern=r"^[A-Za-z0-9_.-]{1,100}$",
    )
    metrics_namespace: str = _setting(
        "Doorstep",
        "1 to 255 letters, digits and the characters _ . / # -",
        "The CloudWatch namespace of the metrics that functions on AWS write.",
        pattern=r"^[A-Za-z0-9_./#-]{1,255}$",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "one of debug, info, warning, error", "Log messages below this level are left out."
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
        "The API key for commands such as `doorstep send`; by default `admin_key`.",
        min_length=8,
        max_length=256,
    )

    def __init__(self, **arguments: Any) -> None:
        if (unknown := _unknown_variable()) is not None:
            raise ConfigError(unknown)
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            raise ConfigError(_sentence(error.errors(include_url=False)[0], arguments, type(self)._variables)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"cannot read {TOML_FILE}: {error}; correct or remove it") from None
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
        own = InitSettingsSource(settings_cls, settings_cls._own_values())  # type: ignore[attr-defined]
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls), own

    @field_validator("retry_delays", "allow_addresses", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Also accept a list as comma-separated text, because an environment variable can only hold text."""
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("retry_delays")
    @classmethod
    def _bound_delays(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 <= delay <= 30 * 86_400 for delay in value):
            raise ValueError
        return value

    @field_validator(*_SECRET_FORMATS)
    @classmethod
    def _check_format(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is not None and not _SECRET_FORMATS[str(info.field_name)].fullmatch(value.get_secret_value()):
            raise ValueError
        return value

    _defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The program's own defaults."""
    _variables: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The program's own names of environment variables, each with the setting that it sets."""

    @classmethod
    def with_defaults(
        cls, defaults: Mapping[str, Any], variables: Mapping[str, str] = MappingProxyType({}), /, **given: Any
    ) -> Self:
        """The settings of a program with its own defaults, which `DOORSTEP_<NAME>` and doorstep.toml override.

        `variables` are more names of environment variables: `{"RETRY_DELAYS": "retry_delays"}` lets users set
        `RETRY_DELAYS`. They override the defaults too, but not `DOORSTEP_<NAME>` and doorstep.toml. `given` settings
        override everything else.
        """
        for name in [*defaults, *variables.values()]:
            if name not in cls.model_fields:
                raise ConfigError(_unknown(name, set(cls.model_fields), "remove it from the program's defaults"))
        own = {"_defaults": MappingProxyType(dict(defaults)), "_variables": MappingProxyType(dict(variables))}
        settings = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **own})
        made: Self = settings(**given)
        return made

    @classmethod
    def _own_values(cls) -> dict[str, Any]:
        given = {setting: os.environ.get(variable) for variable, setting in cls._variables.items()}
        return {**cls._defaults, **{setting: value for setting, value in given.items() if value}}

    @property
    def own_retry_delays(self) -> tuple[float, ...] | None:
        """The delays of the policy `standard`, if they were set."""
        return self.retry_delays if "retry_delays" in self.model_fields_set else None

    @property
    def embedded(self) -> bool:
        """Whether the store is a file or in memory on this machine, which means that its secret key can be stored
        beside it."""
        return not self.database_url.startswith(("postgres", "dynamodb"))

    @property
    def timeout_seconds_max(self) -> float:
        """The longest timeout that `lease_seconds` allows an endpoint to have."""
        return self.lease_seconds - LEASE_SLACK_SECONDS


def secrets_of(settings: Settings) -> Secrets:
    """The secrets in the settings, which must never appear in the log."""
    values = (getattr(settings, name) for name in Settings.model_fields)
    given = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    urls = (one for one in (*given, settings.database_url) if "://" in one)
    return Secrets([*given, *(password for url in urls for password in passwords_in(url))])


class SettingRow(NamedTuple):
    """One row of the table of settings, for help texts and documentation."""

    name: str
    variable: str
    default: str
    rule: str
    about: str


def setting_rows() -> Iterator[SettingRow]:
    """The table, in the order of the class."""
    for name, field in Settings.model_fields.items():
        yield SettingRow(name, _variable(name), _shown_default(field), _rule(field), field.description or "")


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


# -- errors ------------------------------------------------------------------------------------------------


def _sentence(error: ErrorDetails, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """A pydantic error as one sentence: the rule, the rejected value, and where to change it."""
    name, fields = str(error["loc"][0]), Settings.model_fields
    if name not in fields:
        return _unknown(name, set(fields), f"remove {origin(name, arguments)}")
    seen = _shown(fields[name], _given(name, arguments, error["input"]))
    own = (variable for variable, setting in variables.items() if setting == name and os.environ.get(variable))
    source = origin(name, arguments) if name in arguments or _environment().get(_variable(name)) else next(own, None)
    return f"{name} must be {_rule(fields[name])}, got {seen}; change {source or origin(name, arguments)}"


def _unknown_variable() -> str | None:
    """The error message if an environment variable with our prefix is not a setting; it names the first such
    variable."""
    known = {_variable(name) for name in Settings.model_fields}
    unknown = sorted(_environment().keys() - known)
    return _unknown(unknown[0], known, "unset it") if unknown else None


def _variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _rule(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["rule"]) if isinstance(extra, dict) else ""


def _unknown(name: str, known: set[str], remedy: str) -> str:
    import difflib  # imported here because it takes 7 ms to load

    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"{name} is not a setting; {f'did you mean {close[0]}? Otherwise ' if close else ''}{remedy}"


def _given(name: str, arguments: Mapping[str, Any], seen: object) -> object:
    """The whole value as the user wrote it, rather than the part of it that pydantic rejected."""
    return arguments[name] if name in arguments else _environment().get(_variable(name)) or seen


def _shown(field: FieldInfo, value: object) -> str:
    """The value without secrets: username, password and query string are removed from a URL."""
    if field.annotation == SecretStr | None:
        return "something else"
    return repr(shown_url(value)) if isinstance(value, str) and "://" in value else repr(value)


def origin(name: str, arguments: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Where the value of a setting comes from, for an error message."""
    if name in arguments:
        return f"the argument {name}"
    return _variable(name) if _environment().get(_variable(name)) else f"the line {name} in {TOML_FILE}"


def _environment() -> dict[str, str]:
    """The environment variables with our prefix. The names are in upper case, because pydantic-settings ignores case
    too."""
    return {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
