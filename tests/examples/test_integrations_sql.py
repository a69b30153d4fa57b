"""The SQL function of the integrations profile."""

from __future__ import annotations

import psycopg
import pytest

from doorstep import Sql
from doorstep.policy.retry import BUILT_IN
from examples.integrations.program import next_retry_function


def test_calculate_next_retry_has_the_delays_of_the_policies_and_none_for_manual(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for statement in next_retry_function(Sql("postgresql")):
            connection.execute(statement.encode())

        def delay(retries: int | None, policy: str) -> float | None:
            query = "SELECT extract(epoch FROM calculate_next_retry(%s, %s) - now())::float"
            ((seconds,),) = connection.execute(query, (retries, policy)).fetchall()
            return seconds  # type: ignore[no-any-return]

        for policy in ("immediate", "exponential"):
            delays = BUILT_IN[policy].delays
            assert [delay(retries, policy) for retries in range(-1, 6)] == [delays[0], *delays, *[delays[-1]] * 3]
        assert [delay(retries, "manual") for retries in range(4)] == [None] * 4
        kind = "SELECT pg_typeof(calculate_next_retry(0, 'exponential'))::text"
        assert connection.execute(kind).fetchone() == ("timestamp with time zone",)
        for unknown in ("standard", None):
            with pytest.raises(psycopg.errors.InvalidParameterValue), connection.transaction():
                delay(0, unknown)  # type: ignore[arg-type]
