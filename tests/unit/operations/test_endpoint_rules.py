"""Which settings an endpoint's owner may choose, and which are refused."""

from __future__ import annotations

import msgspec
import pytest

from doorstep.encryption import Sealer
from doorstep.engine.directory import Profile
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import CircuitRules, Endpoint, RetryPolicy
from doorstep.operations.endpoint_rules import EndpointForm, EndpointRules, PolicyForm, check, new_endpoint, policy_from
from doorstep.transports.address_guard import AddressGuard
from tests.support.builders import NOW, new_id
from tests.support.signatures import verify

SEALER = Sealer(bytes(32))


@pytest.mark.parametrize("deadline", [1e303, float("inf"), float("nan"), -1])
def test_a_deadline_that_no_clock_can_reach_is_refused(deadline: float) -> None:
    with pytest.raises(InvalidInput, match="deadline_seconds"):
        policy_from(RetryPolicy((1,), deadline_seconds=deadline))


@pytest.mark.parametrize("headers", [{"X-A": "a\tb"}, {"X-A": "a\xa0b"}, {"User-Agent": "me"}, {"webhook-id": "1"}])
def test_a_header_that_could_not_be_sent_or_is_ours_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="headers"):
        check(EndpointForm(name="shop", handler="h", headers=headers), 59)


@pytest.mark.parametrize(
    ("policies", "field"),
    [
        ({"order paid": "quick"}, "policy_by_event_type"),
        ({"order.*": "nope"}, "policy_by_event_type.order.*"),
        ({"order.*": RetryPolicy((1,), deadline_seconds=-1)}, "policy_by_event_type.order.*.deadline_seconds"),
    ],
)
def test_a_policy_for_an_event_type_is_refused_under_its_own_name(policies: dict[str, PolicyForm], field: str) -> None:
    form = EndpointForm(name="shop", handler="h", policy_by_event_type=policies)
    with pytest.raises(InvalidInput) as caught:
        new_endpoint(form, EndpointRules(SEALER, AddressGuard(()), 59), endpoint_id=new_id(), org_id=new_id(), now=NOW)
    assert caught.value.field == field


def test_large_bounds_are_told_in_plain_numbers() -> None:
    form = EndpointForm(name="shop", handler="h", circuit=CircuitRules(failures_max=0))
    with pytest.raises(InvalidInput, match="must be from 1 to 1000000, got 0"):
        check(form, 59)


def enrolled(signing: str) -> tuple[Endpoint, str]:
    form = EndpointForm(name="shop", handler="h", signing=signing)
    return new_endpoint(
        form, EndpointRules(SEALER, AddressGuard(()), 59), endpoint_id=new_id(), org_id=new_id(), now=NOW
    )


@pytest.mark.parametrize(("signing", "prefix"), [("v1", "whsec_"), ("v1a", "whpk_")])
def test_what_the_owner_is_given_verifies_what_the_endpoint_is_sent(signing: str, prefix: str) -> None:
    endpoint, verifier = enrolled(signing)
    lines = Profile(endpoint, SEALER, 30, NOW).signer.headers("msg_1", 1_700_000_000, b"{}")
    headers = dict(line.split(": ", 1) for line in lines)
    assert verifier.startswith(prefix)
    assert headers["webhook-signature"].startswith(f"{signing},")
    assert verify([verifier], headers, b"{}", 1_700_000_000)
    assert not verify([enrolled(signing)[1]], headers, b"{}", 1_700_000_000)


def test_only_the_public_half_of_a_key_pair_is_kept_in_the_clear() -> None:
    endpoint, verifier = enrolled("v1a")
    assert endpoint.signing_secret is not None
    assert (endpoint.signing_secret.scheme, endpoint.signing_secret.public_key) == ("v1a", verifier)
    shared, secret = enrolled("v1")
    assert shared.signing_secret is not None and shared.signing_secret.public_key == ""
    assert secret.encode() not in msgspec.json.encode(shared)


def test_a_way_of_signing_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="signing: must be v1 or v1a, got 'v2'"):
        enrolled("v2")
