"""The shapes of retry policies: a name, a list of delays, or all of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from doorstep.api.limits import BY_EVENT_TYPE, DeadlineSeconds, Delays, Jitter, PolicyName, PolicyTitle, told
from doorstep.api.schemas import Shape
from doorstep.api.wording import BRANCH
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.enrol import PolicyForm


class PolicyShape(Shape):
    """When to try again: the pauses in seconds, how much they vary, and after how long to give up altogether."""

    delays: Delays
    jitter: Jitter = 0.1
    deadline_seconds: DeadlineSeconds | None = None
    name: PolicyTitle = ""

    @classmethod
    def of(cls, policy: RetryPolicy) -> PolicyShape:
        return cls(
            delays=[float(delay) for delay in policy.delays],
            jitter=float(policy.jitter),
            deadline_seconds=policy.deadline_seconds,
            name=policy.name,
        )


_NAME, _DELAYS, _WHOLE = (BRANCH + form for form in ("name", "delays", "whole"))
_BRANCHES: dict[type, str] = {str: _NAME, list: _DELAYS, dict: _WHOLE}


def _branch(given: object) -> str | None:
    """Which form a policy was given in, so that what is wrong with it is told of that form alone."""
    return _BRANCHES.get(type(given))


PolicyIn = Annotated[
    Annotated[PolicyName, Tag(_NAME)] | Annotated[Delays, Tag(_DELAYS)] | Annotated[PolicyShape, Tag(_WHOLE)],
    Discriminator(
        _branch,
        custom_error_type="policy",
        custom_error_message="must be the name of a policy, a list of delays in seconds, or an object",
    ),
]
Policies = Annotated[dict[str, PolicyIn], told(**BY_EVENT_TYPE)]


def policy_form(given: str | list[float] | PolicyShape) -> PolicyForm:
    if not isinstance(given, PolicyShape):
        return given
    return RetryPolicy(tuple(given.delays), given.jitter, given.deadline_seconds, given.name)
