"""Signatures are checked with third-party code: the `standardwebhooks` package for v1, `cryptography` for v1a."""

from __future__ import annotations

import base64
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from doorstep.errors import InvalidInput
from doorstep.transports.signature import Signer, new_private_key, new_secret, public_key_of
from tests.support.signatures import verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1_614_265_330
BODY = b'{"test": 2432232314}'


def signed(secrets: list[str], body: bytes = BODY, at: int = AT, webhook_id: str = ID) -> dict[str, str]:
    lines = Signer(secrets).headers(webhook_id, at, body)
    return {name: value for name, _, value in (line.partition(": ") for line in lines)}


def test_the_published_example_comes_out_as_published() -> None:
    assert Signer([SECRET]).headers(ID, AT, BODY) == (
        f"webhook-id: {ID}",
        f"webhook-timestamp: {AT}",
        "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    )


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200))
def test_a_foreign_library_accepts_what_we_sign(key: bytes, text: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    body, now = text.encode("utf-8", "replace"), int(time.time())
    body = b'"' + body.hex().encode() + b'"'
    Webhook(secret).verify(body, signed([secret], body, now))


def test_a_foreign_library_finds_its_signature_among_several_during_rotation() -> None:
    old, new, key = new_secret(), new_secret(), new_private_key()
    headers = signed([new, old, key], b"{}", int(time.time()))
    assert len(headers["webhook-signature"].split(" ")) == 3
    for secret in (old, new):
        Webhook(secret).verify(b"{}", headers)


def test_we_accept_what_a_foreign_library_signs() -> None:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(AT, UTC)
    signature = Webhook(SECRET).sign(ID, at, BODY.decode())
    headers = {"webhook-id": ID, "webhook-timestamp": str(AT), "webhook-signature": signature}
    assert verify([SECRET], headers, BODY, AT)


def test_v1a_is_an_ed25519_signature_of_id_timestamp_and_body() -> None:
    private = new_private_key()
    scheme, _, encoded = signed([private])["webhook-signature"].partition(",")
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key_of(private).removeprefix("whpk_")))
    assert scheme == "v1a"
    public.verify(base64.b64decode(encoded), f"{ID}.{AT}.".encode() + BODY)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(encoded), f"{ID}.{AT + 1}.".encode() + BODY)


def test_a_public_key_becomes_a_pem_file_as_the_page_about_receiving_says() -> None:
    private = new_private_key()
    content = "MCowBQYDK2VwAyEA" + public_key_of(private).removeprefix("whpk_")
    public = load_pem_public_key(f"-----BEGIN PUBLIC KEY-----\n{content}\n-----END PUBLIC KEY-----\n".encode())
    assert isinstance(public, Ed25519PublicKey)
    signature = base64.b64decode(signed([private])["webhook-signature"].removeprefix("v1a,"))
    public.verify(signature, f"{ID}.{AT}.".encode() + BODY)


def test_a_private_key_with_the_public_key_behind_it_is_the_same_key() -> None:
    private = new_private_key()
    both = base64.b64decode(private.removeprefix("whsk_")) + base64.b64decode(public_key_of(private)[5:])
    assert public_key_of("whsk_" + base64.b64encode(both).decode()) == public_key_of(private)


@pytest.mark.parametrize("secret_and_check", [(SECRET, SECRET), "asymmetric"])
def test_verify_refuses_any_change_and_any_other_key(secret_and_check: tuple[str, str] | str) -> None:
    if secret_and_check == "asymmetric":
        private = new_private_key()
        secret, check, other = private, public_key_of(private), public_key_of(new_private_key())
    else:
        secret, check, other = SECRET, SECRET, new_secret()
    headers = signed([secret])
    assert verify([check], headers, BODY, AT)
    assert verify([other, check], headers, BODY, AT)
    assert not verify([other], headers, BODY, AT)
    assert not verify([], headers, BODY, AT)
    assert not verify([check], headers, BODY + b" ", AT)
    assert not verify([check], headers | {"webhook-id": "x"}, BODY, AT)
    assert not verify([check], headers | {"webhook-timestamp": str(AT + 1)}, BODY, AT)
    assert not verify([check], {name: headers[name] for name in headers if name != "webhook-signature"}, BODY, AT)


@pytest.mark.parametrize("signature", ["", " ", "v1", "v1,", "v1a,%%%", "v2,abc", "v1,é", "," * 1000])
def test_verify_refuses_nonsense_without_an_exception(signature: str) -> None:
    headers = signed([SECRET]) | {"webhook-signature": signature}
    assert not verify([SECRET, public_key_of(new_private_key())], headers, BODY, AT)


@pytest.mark.parametrize("timestamp", ["", "-1", "1e9", "²", "9" * 20, "now"])
def test_verify_refuses_a_timestamp_that_is_none(timestamp: str) -> None:
    assert not verify([SECRET], signed([SECRET]) | {"webhook-timestamp": timestamp}, BODY, AT)


def test_verify_refuses_what_is_older_or_newer_than_the_tolerance() -> None:
    headers = signed([SECRET])
    assert verify([SECRET], headers, BODY, AT + 300) and verify([SECRET], headers, BODY, AT - 300)
    assert not verify([SECRET], headers, BODY, AT + 301) and not verify([SECRET], headers, BODY, AT - 301)


def test_without_secrets_the_id_and_the_timestamp_are_sent_alone() -> None:
    assert Signer([]).headers("a", 1, b"") == ("webhook-id: a", "webhook-timestamp: 1")


def test_new_secrets_sign_by_their_scheme_and_are_never_the_same() -> None:
    for secret, scheme in [(new_secret(), "v1"), (new_private_key(), "v1a")]:
        assert Signer([secret]).headers("a", 1, b"")[-1].startswith(f"webhook-signature: {scheme},")
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(base64.b64decode(new_secret().removeprefix("whsec_"))) == 32


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_%%%",
        "whsec_é",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsk_" + base64.b64encode(b"x" * 31).decode(),
        "whsk_" + base64.b64encode(b"x" * 33).decode(),
        "whpk_" + base64.b64encode(b"x" * 32).decode(),
    ],
)
def test_a_secret_that_cannot_sign_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Signer([secret])
    assert caught.value.field == "secret"
    assert len(secret) < 7 or secret[6:] not in str(caught.value)
