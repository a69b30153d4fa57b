"""Verifying webhooks: which requests are accepted, which are refused, and with which error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from flask import Flask, request
from pydantic import BaseModel
from standardwebhooks import Webhook as TheirWebhook
from starlette.datastructures import Headers

from doorstep.errors import InvalidInput
from doorstep.receiver import (
    HeaderMissing,
    HeaderUnreadable,
    SignatureWrong,
    TooNew,
    TooOld,
    Unverified,
    VersionUnknown,
    Webhook,
)
from tests.unit.receiver.signed import AT, BODY, ID, OTHER_SECRET, PRIVATE_KEY, PUBLIC_KEY, SECRET, headers


def test_a_webhook_that_doorstep_signed_is_believed() -> None:
    received = Webhook(SECRET).verify(headers(SECRET), BODY, now=AT)
    assert received.webhook_id == ID
    assert received.sent_at == datetime.fromtimestamp(AT, UTC)
    assert (received.body, received.json()) == (BODY, {"order": 42})


class Model(BaseModel):
    order: int


@dataclass
class Plain:
    order: int


def test_the_body_can_be_decoded_into_a_type() -> None:
    received = Webhook(SECRET).verify(headers(SECRET), BODY, now=AT)
    assert received.json(Model) == Model(order=42)
    assert received.json(Plain) == Plain(42)
    for kind in (Model, Plain):
        with pytest.raises(ValueError, match="order"):
            replace(received, body=b'{"order": "x"}').json(kind)


def test_the_known_answer_of_standard_webhooks() -> None:
    given = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    webhook = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert webhook.verify(given, b'{"test": 2432232314}', now=1614265330).webhook_id == given["webhook-id"]


def test_what_another_library_signs_is_believed() -> None:
    signature = TheirWebhook(SECRET).sign(ID, datetime.fromtimestamp(AT, UTC), BODY.decode())
    given = {"webhook-id": ID, "webhook-timestamp": str(AT), "webhook-signature": signature}
    assert Webhook(SECRET).verify(given, BODY, now=AT).webhook_id == ID


def test_an_ed25519_signature_is_verified_with_the_public_key_alone() -> None:
    assert Webhook(PUBLIC_KEY).verify(headers(PRIVATE_KEY), BODY, now=AT).webhook_id == ID
    with pytest.raises(SignatureWrong):
        Webhook(PUBLIC_KEY).verify(headers(PRIVATE_KEY), BODY + b" ", now=AT)


def test_any_of_several_secrets_will_do_so_that_they_can_be_rotated() -> None:
    for signed_with in ([SECRET], [OTHER_SECRET], [OTHER_SECRET, SECRET], [PRIVATE_KEY]):
        Webhook(SECRET, OTHER_SECRET, PUBLIC_KEY).verify(headers(*signed_with), BODY, now=AT)
    with pytest.raises(SignatureWrong):
        Webhook(SECRET).verify(headers(OTHER_SECRET), BODY, now=AT)
    Webhook(SECRET).verify(headers(OTHER_SECRET, SECRET), BODY, now=AT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", "01890a5d-ac96-774b-bcce-b302099a8058"),
        ("webhook-timestamp", str(AT + 1)),
        ("webhook-signature", "v1,AAAA v1a,AAAA"),
        ("webhook-signature", ",,, ,v1,%%% v1,AAAA v1a,%%% v1a,AAAA"),
    ],
)
@pytest.mark.parametrize(("signs", "verifies"), [(SECRET, SECRET), (PRIVATE_KEY, PUBLIC_KEY)], ids=["v1", "v1a"])
def test_a_changed_header_is_not_believed(name: str, value: str, signs: str, verifies: str) -> None:
    Webhook(verifies).verify(headers(signs), BODY, now=AT)
    with pytest.raises(SignatureWrong):
        Webhook(verifies).verify(headers(signs) | {name: value}, BODY, now=AT)


@pytest.mark.parametrize(
    "malformed", ["v1", "v1,", ",AAAA", "K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9", "v1,%%%", "v1:AAAA", " "]
)
def test_a_malformed_signature_is_not_called_wrong(malformed: str) -> None:
    with pytest.raises(HeaderUnreadable, match="webhook-signature") as raised:
        Webhook(SECRET).verify(headers(SECRET) | {"webhook-signature": malformed}, BODY, now=AT)
    assert raised.value.header == "webhook-signature"


@pytest.mark.parametrize(
    ("secret", "given", "wanted"),
    [(SECRET, "v2,AAAA v1a,AAAA", "v1"), (PUBLIC_KEY, "v1,AAAA", "v1a")],
    ids=["v1", "v1a"],
)
def test_a_signature_of_an_unknown_version_has_its_own_error(secret: str, given: str, wanted: str) -> None:
    with pytest.raises(VersionUnknown, match=f"{wanted}$"):
        Webhook(secret).verify(headers(SECRET) | {"webhook-signature": given}, BODY, now=AT)


def test_programs_that_expect_a_wrong_signature_also_catch_an_unknown_version() -> None:
    with pytest.raises(SignatureWrong):
        Webhook(SECRET).verify(headers(PRIVATE_KEY), BODY, now=AT)


def test_unknown_versions_beside_a_valid_signature_are_ignored() -> None:
    given = headers(SECRET)
    given["webhook-signature"] = f"v2,AAAA garbage {given['webhook-signature']}"
    assert Webhook(SECRET).verify(given, BODY, now=AT).webhook_id == ID


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_or_empty_header_is_named(name: str) -> None:
    given = headers(SECRET)
    for changed in ({key: value for key, value in given.items() if key != name}, given | {name: ""}):
        with pytest.raises(HeaderMissing, match=f"^the header {name} is missing$") as raised:
            Webhook(SECRET).verify(changed, BODY, now=AT)
        assert raised.value.header == name


@pytest.mark.parametrize("text", ["yesterday", "-5", "1.5", "1e9", "²", "٣", "9" * 400, " 1"])
def test_a_timestamp_that_is_no_number_is_refused_and_not_an_accident(text: str) -> None:
    with pytest.raises(HeaderUnreadable, match="webhook-timestamp"):
        Webhook(SECRET).verify(headers(SECRET) | {"webhook-timestamp": text}, BODY, now=AT)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-signature"])
@pytest.mark.parametrize("text", ["ü", "\udcff"])
def test_headers_that_cannot_be_encoded_are_refused_and_not_an_accident(name: str, text: str) -> None:
    with pytest.raises(HeaderUnreadable, match=name):
        Webhook(SECRET).verify(headers(SECRET) | {name: text}, BODY, now=AT)


def test_five_minutes_are_tolerated_in_both_directions_and_no_more() -> None:
    webhook, given = Webhook(SECRET), headers(SECRET)
    for now in (AT - 300, AT, AT + 300):
        webhook.verify(given, BODY, now=now)
    with pytest.raises(TooOld, match=r"^webhook-timestamp is 301 s ago; up to 300 s are tolerated$"):
        webhook.verify(given, BODY, now=AT + 301)
    with pytest.raises(TooNew, match=r"^webhook-timestamp is 301 s ahead; up to 300 s are tolerated$"):
        webhook.verify(given, BODY, now=AT - 301)
    Webhook(SECRET, tolerance_seconds=3_600).verify(given, BODY, now=AT + 3_000)


def test_without_a_given_time_it_is_now() -> None:
    with pytest.raises(TooOld):
        Webhook(SECRET).verify(headers(SECRET), BODY)


def test_no_error_repeats_a_secret_or_a_signature() -> None:
    given = headers(OTHER_SECRET)
    for attempt in (given, given | {"webhook-timestamp": "1"}, {}):
        with pytest.raises(Unverified) as raised:
            Webhook(SECRET).verify(attempt, BODY, now=AT)
        for hidden in (SECRET, OTHER_SECRET, given["webhook-signature"]):
            assert hidden not in str(raised.value)


def test_a_webhook_needs_a_secret_that_can_be_used() -> None:
    for secrets in ((), ("hunter2",), ("whsec_AAAA",), ("whpk_AAAA",)):
        with pytest.raises(InvalidInput) as raised:
            Webhook(*secrets)
        assert "hunter2" not in str(raised.value)


def test_a_body_that_was_decoded_already_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="bytes of the request as received, got str"):
        Webhook(SECRET).verify(headers(SECRET), BODY.decode(), now=AT)  # type: ignore[arg-type]


def test_headers_may_come_as_any_framework_has_them() -> None:
    given = {name.title(): value for name, value in headers(SECRET).items()}
    pairs = list(given.items())
    for form in (given, pairs, Headers(given)):
        Webhook(SECRET).verify(form, BODY, now=AT)
    with Flask(__name__).test_request_context(headers=given):
        Webhook(SECRET).verify(request.headers, BODY, now=AT)
