"""Fixtures for tests on DynamoDB: one emulator per test process, and a table per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support import ministack

_REGION = "eu-central-1"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def aws_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an emulator of AWS."""
    yield from ministack.serving(tmp_path_factory.mktemp("ministack"))


@pytest.fixture
def dynamodb_url(aws_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a table that does not exist yet."""
    for name, value in ministack.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return f"dynamodb://doorstep-{next(_numbers)}?region={_REGION}&endpoint_url={aws_endpoint}"


@pytest.fixture
def dynamodb_queue_url(aws_endpoint: str, dynamodb_url: str) -> str:
    """The URL of another table, with a queue of its own."""
    import botocore.session

    name = f"doorstep-queue-{next(_numbers)}"
    session = botocore.session.get_session()
    session.create_client("sqs", region_name=_REGION, endpoint_url=aws_endpoint).create_queue(QueueName=name)
    return f"dynamodb://{name}?region={_REGION}&queue={name}&endpoint_url={aws_endpoint}"
