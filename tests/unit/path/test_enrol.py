"""What an endpoint's owner may ask for."""

from __future__ import annotations

import pytest

from doorstep.errors import InvalidInput
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.enrol import EndpointForm, check, policy_from


@pytest.mark.parametrize("deadline", [1e303, float("inf"), float("nan"), -1])
def test_a_deadline_that_no_clock_can_reach_is_refused(deadline: float) -> None:
    with pytest.raises(InvalidInput, match="deadline_seconds"):
        policy_from(RetryPolicy((1,), deadline_seconds=deadline))


@pytest.mark.parametrize("headers", [{"X-A": "a\tb"}, {"X-A": "a\xa0b"}, {"User-Agent": "me"}, {"webhook-id": "1"}])
def test_a_header_that_could_not_be_sent_or_is_ours_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="headers"):
        check(EndpointForm(name="shop", handler="h", headers=headers), 59)
