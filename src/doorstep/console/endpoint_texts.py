"""The form of an endpoint: its settings as texts, as the form shows them and reads them back."""

from __future__ import annotations

from collections.abc import Mapping

from doorstep.console.retry_words import delays_text, policy_text, span_text
from doorstep.model.retry_policy import RetryPolicy
from doorstep.model.slo import Slo
from doorstep.path.enrol import EndpointForm, PolicyForm
from doorstep.policy.retry import BUILT_IN

OWN = "own"
"""The policy whose delays the form gives."""
KEPT = "***"
"""The value of a header that stays as it is: nobody is shown what it is."""


def texts_of(form: EndpointForm) -> dict[str, str]:
    """The text of every input. What is not said is an empty text, which stands for the default."""
    return {
        "name": _one_line(form.name),
        "kind": "url" if form.handler is None else "handler",
        "url": _one_line(form.url or ""),
        "handler": _one_line(form.handler or ""),
        "event_types": "\n".join(form.event_types),
        **_policy_texts(form.policy),
        "policy_by_event_type": _lines("=", {key: _policy_line(one) for key, one in form.policy_by_event_type.items()}),
        "timeout_seconds": _span_or_nothing(form.timeout_seconds),
        "concurrency_max": _number(form.concurrency_max),
        "rate_per_second": _number(form.rate_per_second),
        "headers": _lines(":", dict.fromkeys(form.headers, KEPT)),
        "retry_on": "\n".join(form.retry_on),
        "give_up_on": "\n".join(form.give_up_on),
        "code_map": _lines("=", form.code_map),
        "circuit.failures_max": _number(form.circuit.failures_max),
        "circuit.open_seconds": span_text(form.circuit.open_seconds),
        "circuit.disable_after_seconds": span_text(form.circuit.disable_after_seconds),
        **_slo_texts(form.slo),
        "envelope": "yes" if form.envelope else "",
        "batch": "yes" if form.batch else "",
        "signing": form.signing,
    }


def _policy_texts(policy: PolicyForm | None) -> dict[str, str]:
    if not isinstance(policy, RetryPolicy):
        return {"policy": "" if policy is None else str(policy)}
    if BUILT_IN.get(policy.name) == policy:
        return {"policy": policy.name}
    return {
        "policy": OWN,
        "policy.delays": delays_text(policy),
        "policy.jitter": f"{100 * policy.jitter:.12g}",
        "policy.deadline_seconds": _span_or_nothing(policy.deadline_seconds),
    }


def _slo_texts(slo: Slo | None) -> dict[str, str]:
    if slo is None:
        return {}
    return {
        "slo.success": f"{100 * slo.success:.12g}",
        "slo.p95_seconds": span_text(slo.p95_seconds),
        "slo.oldest_seconds": span_text(slo.oldest_seconds),
    }


def _policy_line(policy: PolicyForm) -> str:
    return policy_text(policy) if isinstance(policy, RetryPolicy) else str(policy)


def _span_or_nothing(value: float | None) -> str:
    return "" if value is None else span_text(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


def _lines(sign: str, pairs: Mapping[str, str]) -> str:
    gap = " = " if sign == "=" else f"{sign} "
    return "\n".join(f"{name}{gap}{value}" for name, value in pairs.items())


def _one_line(text: str) -> str:
    """An input holds no line ends, so that a browser would send it back without them."""
    return "".join(text.splitlines()).strip()
