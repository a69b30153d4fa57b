"""E-mail over real sockets: what the server says becomes what a delivery understands; no address gets past the guard."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult

from doorstep.errors import HandlerFailure, Permanent, Transient
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.mail import Mail, MailServer, send_mail
from tests.acceptance.mailbox import Mailbox, receiving_mail
from tests.unit.wire.certificates import certificate

OPEN = AddressGuard([ip_network("127.0.0.0/8")])
MAIL = Mail(to=["ops@shop.example"], subject="[Doorstep] shop: down", text="It is\ndown.", mail_id="0198a4f2")


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with receiving_mail() as it:
        yield it


def server(mailbox: Mailbox, url: str = "smtp://127.0.0.1:{port}") -> MailServer:
    return MailServer.from_url(url.format(port=mailbox.port), "doorstep@shop.example")


async def send(to: MailServer, mail: Mail = MAIL, guard: AddressGuard = OPEN, **options: Any) -> dict[str, str]:
    return await asyncio.to_thread(send_mail, to, guard, mail, options.pop("timeout", 5.0), **options)


async def test_a_mail_arrives_as_it_was_worded_under_an_id_that_stays(mailbox: Mailbox) -> None:
    assert await send(server(mailbox)) == {}
    (mail,) = mailbox.mails
    assert (mail.sender, mail.to) == ("doorstep@shop.example", ["ops@shop.example"])
    assert (mail.subject, mail.text.splitlines()) == ("[Doorstep] shop: down", ["It is", "down."])
    assert mail.message["message-id"] == "<0198a4f2@shop.example>"
    assert mail.message["auto-submitted"] == "auto-generated"


async def test_a_name_with_line_ends_in_it_makes_no_header_of_its_own(mailbox: Mailbox) -> None:
    evil = Mail(to=MAIL.to, subject="shop\r\nBcc: thief@example.net\n\nhello", text="x", mail_id="1")
    await send(server(mailbox), evil)
    (mail,) = mailbox.mails
    assert mail.message["bcc"] is None
    assert mail.to == ["ops@shop.example"]


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [("451 later", Transient, "SERVICE_UNAVAILABLE"), ("550 never", Permanent, "REJECTED")],
)
async def test_what_the_server_says_is_transient_or_permanent(
    mailbox: Mailbox, answer: str, kind: type[HandlerFailure], code: str
) -> None:
    mailbox.answer = lambda: answer
    with pytest.raises(kind) as caught:
        await send(server(mailbox))
    assert (caught.value.code, answer[4:] in caught.value.message) == (code, True)


async def test_an_address_that_the_guard_refuses_is_not_connected_to(mailbox: Mailbox) -> None:
    for url in ("smtp://127.0.0.1:{port}", "smtp://localhost:{port}"):
        with pytest.raises(Permanent) as caught:
            await send(server(mailbox, url), guard=AddressGuard())
        assert caught.value.code == "BLOCKED"
    assert mailbox.mails == []


async def test_each_address_of_a_name_is_judged_by_itself(mailbox: Mailbox) -> None:
    """The first is refused, the second is allowed, and only that is connected to."""
    await send(server(mailbox, "smtp://mail.example:{port}"), resolve=lambda host, port: ["10.0.0.1", "127.0.0.1"])
    assert len(mailbox.mails) == 1


async def test_a_password_is_not_sent_without_tls(mailbox: Mailbox) -> None:
    with pytest.raises(Permanent) as caught:
        await send(server(mailbox, "smtp://user:canary@127.0.0.1:{port}"))
    assert caught.value.code == "TLS"
    assert "canary" not in str(caught.value)


async def test_over_starttls_a_password_is_sent_and_a_wrong_one_is_a_permanent_failure(tmp_path: Any) -> None:
    served, authority = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=authority)

    def judged(_server: object, _session: object, _envelope: object, _mechanism: str, given: Any) -> AuthResult:
        right = given.password == b"right"
        return AuthResult(success=right, handled=right)  # what it has not handled, the server answers itself

    async with receiving_mail(tls_context=served, authenticator=judged, auth_require_tls=True) as mailbox:
        await send(server(mailbox, "smtp://user:right@127.0.0.1:{port}"), trust=trust)
        assert len(mailbox.mails) == 1
        with pytest.raises(Permanent) as caught:
            await send(server(mailbox, "smtp://user:wrong@127.0.0.1:{port}"), trust=trust)
        assert caught.value.code == "AUTH_FAILED"
        with pytest.raises(Permanent) as untrusted:
            await send(server(mailbox, "smtp://user:right@127.0.0.1:{port}"))
        assert untrusted.value.code == "TLS"


async def test_a_server_that_dribbles_is_cut_off_at_the_deadline() -> None:
    async def dribble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b"220-" + b"x" * 1_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    listener = await asyncio.start_server(dribble, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    began = asyncio.get_running_loop().time()
    with pytest.raises(Transient) as caught:
        await send(MailServer(host="127.0.0.1", port=port, sender="a@b.example"), timeout=0.5)
    assert caught.value.code == "TIMEOUT"
    assert asyncio.get_running_loop().time() - began < 3
    listener.close()


async def test_nobody_at_home_is_transient() -> None:
    async with receiving_mail() as mailbox:
        gone = server(mailbox)
    with pytest.raises(Transient) as caught:
        await send(gone)
    assert caught.value.code == "CONNECTION"
