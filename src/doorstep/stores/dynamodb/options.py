"""The options in a `dynamodb://` URL."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from doorstep.errors import ConfigError
from doorstep.model.record import Record
from doorstep.stores.dynamodb.tables import TABLE_NAME

_FORM = "dynamodb://TABLE?region=eu-central-1&queue=NAME"
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_QUEUE = re.compile(r"https?://\S+|[A-Za-z0-9_-]{1,80}")
_ENDPOINT_URL = re.compile(r"https?://[^\s/]+/?")


class Options(Record, frozen=True, kw_only=True):
    table: str
    region: str | None = None
    """None leaves it to the AWS library, which reads AWS_REGION and its configuration files."""
    queue: str | None = None
    """The name or the URL of the SQS queue. Without a queue, workers find due deliveries by polling the table."""
    endpoint_url: str | None = None
    """The address of an emulator; None for AWS itself."""


def options_from(url: str) -> Options:
    """Read a URL. Raises ConfigError that names the part that is wrong."""
    parts = urlsplit(url)
    table = unquote(parts.netloc)
    if not TABLE_NAME.fullmatch(table) or parts.path not in ("", "/"):
        raise ConfigError(
            f"database_url: a DynamoDB URL is {_FORM}, with a table name of 3 to 255 letters, digits, '_', '-' and '.',"
            f" got {url!r}; change it"
        )
    given = parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in given]
    unknown = sorted(set(names) - set(_RULES))
    if unknown or len(set(names)) < len(names):
        wrong = unknown[0] if unknown else next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"database_url: a DynamoDB URL takes region, queue and endpoint_url, each once, got {wrong!r}; remove it"
        )
    for name, value in given:
        rule, wanted = _RULES[name]
        if not rule.fullmatch(value):
            raise ConfigError(f"database_url: {name} must be {wanted}, got {value!r}; change it")
    return Options(table=table, **dict(given))


_RULES = {
    "region": (_REGION, "the code of an AWS region, such as eu-central-1"),
    "queue": (_QUEUE, "the name or the URL of an SQS queue"),
    "endpoint_url": (_ENDPOINT_URL, "a URL without a path, such as http://127.0.0.1:4566"),
}
