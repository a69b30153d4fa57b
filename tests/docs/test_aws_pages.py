"""The arithmetic of the cost model, and the queries of the log."""

from __future__ import annotations

import re

from doorstep.telemetry.facts import RetryScheduled, StatusTransition
from tests.docs.pages import EXPLANATION, HOW_TO, rows

COSTS = EXPLANATION / "aws-costs.md"
GUIDE = HOW_TO / "aws.md"


def test_the_costs_are_the_counts_times_the_prices_and_add_up() -> None:
    *parts, total = rows(COSTS, "## A million events")
    costs = []
    for part, count, price, cost in parts:
        assert round(float(count) * dollars(price), 2) == dollars(cost), part
        costs.append(dollars(cost))
    assert round(sum(costs), 2) == dollars(total[3])


def test_what_shards_carry_is_a_thousand_writes_a_second_each() -> None:
    for index, _, entries, carried in rows(COSTS, "## Hot partitions"):
        written = max(int(number) for number in re.findall(r"\d+", entries))
        assert int(carried.split()[0].replace(",", "")) == 8 * 1_000 // written, index


def dollars(text: str) -> float:
    return float(text.removeprefix("$"))


def test_the_queries_ask_for_fields_that_log_lines_have() -> None:
    known = {name for kind in (StatusTransition, RetryScheduled) for name in kind.__struct_encode_fields__}
    known |= {"message", "message_id", "receive_count"}  # a notice of the delivery function
    queries = re.findall(r"```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(queries) == 4
    for query in queries:
        without_values = re.sub(r'"[^"]*"|/[^/]*/|\w+\(\*\)|as \w+|bin\(\w+\)', "", query)
        words = set(re.findall(r"@?[a-z_]+", without_values)) - {"and"}
        commands = {"filter", "fields", "stats", "sort", "limit", "by", "asc", "desc", "like", "pct"}
        made = set(re.findall(r"as (\w+)", query))
        assert words - commands - made - {"@timestamp", "@message"} <= known, query
