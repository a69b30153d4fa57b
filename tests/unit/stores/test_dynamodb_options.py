"""`dynamodb://` URLs, and what the store declares to lack. None of this needs AWS or its library."""

from __future__ import annotations

import pytest

from doorstep.errors import ConfigError
from doorstep.stores.dynamodb.features import FEATURES, not_offered
from doorstep.stores.dynamodb.options import Options, options_from
from doorstep.stores.store import Part


def test_a_url_names_the_table_and_its_options() -> None:
    url = "dynamodb://Events.prod-1?region=eu-central-1&queue=due&endpoint_url=http://127.0.0.1:4566"
    wanted = Options(table="Events.prod-1", region="eu-central-1", queue="due", endpoint_url="http://127.0.0.1:4566")
    assert options_from(url) == wanted
    assert options_from("dynamodb://doorstep") == Options(table="doorstep")
    queue = "https://sqs.eu-central-1.amazonaws.com/1234/due"
    assert options_from(f"dynamodb://doorstep?queue={queue}").queue == queue


@pytest.mark.parametrize(
    ("url", "named"),
    {
        "dynamodb://": "table name",
        "dynamodb://ab": "table name",
        "dynamodb://a table": "table name",
        "dynamodb://doorstep/path": "table name",
        "dynamodb://doorstep?colour=red": "'colour'",
        "dynamodb://doorstep?region=eu-central-1&region=us-east-1": "each once",
        "dynamodb://doorstep?region=Frankfurt": "region",
        "dynamodb://doorstep?region=": "region",
        "dynamodb://doorstep?queue=my queue": "queue",
        "dynamodb://doorstep?endpoint_url=127.0.0.1:4566": "endpoint_url",
    }.items(),
)
def test_a_wrong_url_is_refused_with_the_part_that_is_wrong(url: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        options_from(url)


@pytest.mark.parametrize("part", Part)
def test_every_missing_part_says_in_one_sentence_what_to_use_instead(part: Part) -> None:
    assert part in FEATURES.lacks
    assert str(not_offered(part)).startswith(f"{part} are not offered on DynamoDB; ")
