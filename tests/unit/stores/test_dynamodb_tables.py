"""The declared table and queue messages, which the deployment and the functions rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from doorstep.clock import SECOND
from doorstep.errors import InvalidInput
from doorstep.model.record import uuid7
from doorstep.stores.dynamodb.messages import DueMessage, decode, delay_seconds, encode
from doorstep.stores.dynamodb.tables import INDEXES, KEY_ATTRIBUTES, table_definition


def test_every_index_key_has_a_declared_type() -> None:
    definition = table_definition("doorstep")
    assert [index.name for index in INDEXES] == [one["IndexName"] for one in definition["GlobalSecondaryIndexes"]]  # type: ignore[attr-defined]
    assert len(KEY_ATTRIBUTES) == 2 * (len(INDEXES) + 1)


def test_a_message_is_read_as_it_was_written() -> None:
    message = DueMessage(uuid7(1), uuid7(2), 7)
    assert decode(encode(message)) == message


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"event_id": "1", "delivery_id": "2", "version": 3}'])
def test_a_message_of_another_program_is_refused(body: str) -> None:
    with pytest.raises(InvalidInput, match="key and version"):
        decode(body)


def test_a_delay_is_exact_to_the_second_never_early_and_at_most_900_seconds() -> None:
    now = 1_000 * SECOND
    due = {now - SECOND: 0, now: 0, now + 1: 1, now + SECOND: 1, now + 900 * SECOND: 900, now + 900 * SECOND + 1: None}
    assert {at: delay_seconds(at, now) for at in due} == due


def test_tables_and_messages_load_no_aws_library() -> None:
    code = (
        "import sys, doorstep.stores.dynamodb.tables, doorstep.stores.dynamodb.messages, doorstep.stores.open;"
        "sys.exit(any(name.split('.')[0] in ('boto3', 'botocore', 'aiobotocore') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
