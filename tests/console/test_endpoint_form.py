"""The endpoint form reads back exactly what it shows, and fields that the user did not edit stay unchanged."""

from __future__ import annotations

import pytest

from doorstep.console.endpoint_form import (
    KEPT,
    changes_of,
    delays_from_text,
    flawed_input,
    in_force,
    in_words,
    new_form,
    policy_from_text,
    policy_text,
    span_from_text,
    span_text,
    texts_of,
)
from doorstep.console.fields import Fields
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint, LogDestination, RetryPolicy, Slo
from doorstep.model.org import Org
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.policy.retry import BUILT_IN
from tests.support.builders import an_endpoint, an_org

FULL = EndpointForm(
    name="carrier <one>",
    url="https://example.com/hooks?a=1&b=2",
    event_types=("order.*", "user.created"),
    policy=RetryPolicy((3, 90, 7_200), jitter=0.2, deadline_seconds=86_400),
    policy_by_event_type={"order.paid": "quick", "order.*": RetryPolicy((0.5,), jitter=0.0)},
    timeout_seconds=2.5,
    concurrency_max=4,
    rate_per_second=0.5,
    headers={"X-Tenant": "17", "Authorization": "Bearer s3cret"},
    retry_on=("404", "*"),
    give_up_on=("RATE_LIMIT",),
    code_map={"E17": "RATE_LIMIT", "E18": "AUTH_FAILED"},
    circuit=CircuitRules(9, 60, 86_400),
    slo=Slo(success=0.999, p95_seconds=0.25, oldest_seconds=600),
    envelope=True,
    batch=False,
)


def fields(form: EndpointForm, **changed: str) -> Fields:
    """The fields that a browser submits if only `changed` was edited."""
    return Fields((texts_of(form) | changed).items())


@pytest.mark.parametrize(
    "form",
    [
        FULL,
        EndpointForm(name="a", handler="ship", event_types=("*",), policy="manual"),
        EndpointForm(name="a", destination=LogDestination()),
    ],
)
def test_the_form_reads_back_what_it_shows(form: EndpointForm) -> None:
    headers = "\n".join(f"{name}: {value}" for name, value in form.headers.items())
    assert new_form(fields(form, headers=headers)) == form


def test_every_setting_of_an_endpoint_has_an_input() -> None:
    assert {name.partition(".")[0] for name in texts_of(FULL)} == set(EndpointForm.__struct_fields__)


def test_what_nobody_touched_is_not_changed() -> None:
    assert changes_of(fields(FULL), FULL) == {}
    windows = {name: value.replace("\n", "\r\n") for name, value in texts_of(FULL).items()}
    assert changes_of(Fields(windows.items()), FULL) == {}, "browsers send line ends of their own"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"name": "other"}, {"name": "other"}),
        ({"event_types": "*"}, {"event_types": ("*",)}),
        ({"policy": "quick"}, {"policy": "quick"}),
        ({"policy": ""}, {"policy": None}),
        ({"policy.delays": "1m 2m"}, {"policy": RetryPolicy((60, 120), 0.2, 86_400)}),
        ({"policy_by_event_type": ""}, {"policy_by_event_type": {}}),
        ({"timeout_seconds": ""}, {"timeout_seconds": None}),
        ({"timeout_seconds": "1m"}, {"timeout_seconds": 60}),
        ({"concurrency_max": "8"}, {"concurrency_max": 8}),
        ({"retry_on": ""}, {"retry_on": ()}),
        ({"code_map": "A=B"}, {"code_map": {"A": "B"}}),
        ({"circuit.open_seconds": ""}, {"circuit": CircuitRules(9, 300, 86_400)}),
        ({"slo.success": "95"}, {"slo": Slo(success=0.95, p95_seconds=0.25, oldest_seconds=600)}),
        ({"slo.success": "", "slo.p95_seconds": "", "slo.oldest_seconds": ""}, {"slo": None}),
        ({"envelope": ""}, {"envelope": False}),
        ({"destination": "handler", "handler": "ship"}, {"url": None, "handler": "ship"}),
        ({"destination": "log"}, {"destination": LogDestination(), "url": None, "handler": None}),
    ],
    ids=lambda value: ",".join(map(str, value)),
)
def test_a_change_is_told_by_the_field_that_it_is_of(changed: dict[str, str], expected: dict[str, object]) -> None:
    assert changes_of(fields(FULL, **changed), FULL) == expected


def test_the_values_of_headers_are_not_shown_and_can_be_kept() -> None:
    assert texts_of(FULL)["headers"] == f"X-Tenant: {KEPT}\nAuthorization: {KEPT}"
    kept = changes_of(fields(FULL, headers=f"Authorization: {KEPT}\nX-New: a:b"), FULL)
    assert kept == {"headers": {"Authorization": "Bearer s3cret", "X-New": "a:b"}}
    with pytest.raises(InvalidInput, match="no value to keep"):
        changes_of(fields(FULL, headers=f"X-Unknown: {KEPT}"), FULL)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("policy.delays", "soon"),
        ("policy.jitter", "200"),
        ("policy.deadline_seconds", "-1"),
        ("policy_by_event_type", "order.paid quick"),
        ("policy_by_event_type", "order.paid = 5s; sometimes 3"),
        ("timeout_seconds", "1 fortnight"),
        ("concurrency_max", "1.5"),
        ("rate_per_second", "nan"),
        ("headers", "no colon"),
        ("code_map", "E17"),
        ("circuit.failures_max", "x"),
        ("slo.success", "101"),
    ],
)
def test_what_cannot_be_read_names_its_input(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        changes_of(fields(FULL, **{name: text}), FULL)
    assert flawed_input(refused.value) == name


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("circuit.open_seconds", "circuit.open_seconds"),
        ("policy_by_event_type.order.*.deadline_seconds", "policy_by_event_type"),
        ("policy.name", "policy"),
        ("elsewhere", ""),
    ],
)
def test_an_error_of_the_engine_is_shown_at_the_input_that_it_is_about(field: str, name: str) -> None:
    assert flawed_input(InvalidInput(field, "is wrong")) == name


# -- policies in words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            BUILT_IN["standard"],
            (
                "Immediately, then after 5 s, 30 s, 2 min, 10 min, 1 h, 6 h and 1 d: 8 attempts within 1 d 7 h. "
                "Delays vary by 10%. Sooner when the receiver is back."
            ),
        ),
        (
            BUILT_IN["manual"],
            "One attempt. Failures are not retried automatically; they wait in the retry queue for an operator.",
        ),
        (RetryPolicy(()), "One attempt. Failures are not retried automatically; they become dead letters."),
        (RetryPolicy((0, 0)), "3 attempts, one right after another."),
        (
            RetryPolicy((2,), jitter=0, deadline_seconds=3_600),
            "Immediately, then after 2 s: 2 attempts within 2 s. No attempt later than 1 h after the event was due.",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, RetryPolicy) else "",
)
def test_a_policy_is_said_in_words(policy: RetryPolicy, words: str) -> None:
    assert in_words(policy).replace("\u2009", " ").replace("\u202f", " ").replace("\xa0", " ") == words


@pytest.mark.parametrize("policy", [*BUILT_IN.values(), RetryPolicy((1.5, 90)), RetryPolicy((), 0.5, 61)])
def test_a_policy_as_text_is_read_back_as_it_was(policy: RetryPolicy) -> None:
    read = policy_from_text("policy", policy_text(policy))
    assert read == (policy.name or policy)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.5, "0.5s"), (60, "1m"), (90, "90s"), (7_200, "2h"), (172_800, "2d")]
)
def test_spans_have_the_largest_unit_in_which_they_are_whole(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
    assert span_from_text("x", text) == seconds


def test_delays_may_be_parted_by_commas_or_blanks() -> None:
    assert delays_from_text("x", " 5, 1min  2h,") == (5, 60, 7_200)
    assert delays_from_text("x", "") == ()


def test_the_policies_in_force_are_the_most_specific_ones() -> None:
    org = an_org(policy=BUILT_IN["carrier"], policy_by_event_type={"a.*": BUILT_IN["quick"]})
    plain: Endpoint = an_endpoint(org.org_id)
    own: Endpoint = an_endpoint(
        org.org_id, policy=BUILT_IN["patient"], policy_by_event_type={"a.b": BUILT_IN["manual"]}
    )
    standard = BUILT_IN["standard"]

    def told(endpoint: Endpoint, of: Org | None, retries_max: int = 20) -> list[tuple[str, str, int]]:
        found = in_force(endpoint, of, standard, retries_max)
        return [(one.event_types, one.policy.name, len(one.policy.delays)) for one in found]

    assert told(plain, None) == [("*", "standard", 7)]
    assert told(plain, org) == [("a.*", "quick", 3), ("*", "carrier", 3)]
    assert told(own, org) == [("a.b", "manual", 0), ("*", "patient", 9)]
    assert told(own, org, 2) == [("a.b", "manual", 0), ("*", "patient", 2)]
