"""E-mail over real sockets: SMTP replies become delivery outcomes, and no connection bypasses the address guard."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiosmtpd.smtp import AuthResult

from doorstep.errors import HandlerFailure, Permanent, Transient
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.mail import Mail, MailServer, Report, earlier_report, send_mail
from tests.acceptance.mailbox import Mailbox, receiving_mail
from tests.unit.transports.certificates import certificate

OPEN = AddressGuard([ip_network("127.0.0.0/8")])
MAIL = Mail(to=["ops@shop.example"], subject="[Doorstep] shop: down", text="It is\ndown.", mail_id="0198a4f2")
HOSTILE_SUBJECTS = [
    "shop\r\nBcc: thief@example.net\n\nhello",
    "shop\rBcc: thief@example.net",
    "shop\u2028Bcc: thief@example.net\x85Bcc: thief@example.net\x0bBcc: thief@example.net",
    "=?utf-8?q?shop=0D=0ABcc=3A_thief=40example.net=0D=0A=0D=0Ahello?=",
    "=?utf-8?b?c2hvcA0KQmNjOiB0aGllZkBleGFtcGxlLm5ldA0K?=",
    "\x00\x1b[2J" + "shop " * 200,
]


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with receiving_mail() as it:
        yield it


def server(mailbox: Mailbox, url: str = "smtp://127.0.0.1:{port}") -> MailServer:
    return MailServer.from_url(url.format(port=mailbox.port), "doorstep@shop.example")


async def send(to: MailServer, mail: Mail = MAIL, guard: AddressGuard = OPEN, **options: Any) -> Report:
    timeout = options.pop("timeout", 5.0)
    return await asyncio.to_thread(send_mail, to, guard, mail, mail.to, timeout, **options)


async def test_a_mail_arrives_as_it_was_worded_under_an_id_that_stays(mailbox: Mailbox) -> None:
    assert await send(server(mailbox)) == Report(sent=("ops@shop.example",))
    (mail,) = mailbox.mails
    assert (mail.sender, mail.to) == ("doorstep@shop.example", ["ops@shop.example"])
    assert (mail.subject, mail.text.splitlines()) == ("[Doorstep] shop: down", ["It is", "down."])
    assert mail.message["message-id"] == "<0198a4f2@shop.example>"
    assert mail.message["auto-submitted"] == "auto-generated"


async def test_a_name_with_line_ends_in_it_makes_no_header_of_its_own(mailbox: Mailbox) -> None:
    for subject in HOSTILE_SUBJECTS:
        await send(server(mailbox), Mail(to=MAIL.to, subject=subject, text="x", mail_id="1"))
        mail = mailbox.mails.pop()
        assert mail.message["bcc"] is None and mail.text.strip() == "x"
        assert mail.to == ["ops@shop.example"]
        assert "\n" not in mail.subject and len(mail.message.get_all("subject", [])) == 1


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


# -- some addresses are refused ----------------------------------------------------------------------------

A, B, C = "a@shop.example", "b@shop.example", "c@shop.example"
TO_ALL = Mail(to=[A, B, C], subject="s", text="t", mail_id="1")


async def test_what_the_server_answers_for_each_address_is_reported_and_the_others_get_the_mail(
    mailbox: Mailbox,
) -> None:
    mailbox.answers = {B: "450 mailbox busy", C: "550 no such user"}
    report = await send(server(mailbox), TO_ALL)
    assert report == Report(sent=(A,), refused={C: "550: no such user"}, deferred={B: "450: mailbox busy"})
    (mail,) = mailbox.mails
    assert mail.to == [A]
    with pytest.raises(Transient) as caught:
        report.check()
    assert caught.value.code == "RECIPIENT_REFUSED"
    assert caught.value.message == f"For {B} the mail server answered 450: mailbox busy. 1 got it."


async def test_the_next_attempt_goes_to_those_alone_who_may_still_get_it(mailbox: Mailbox) -> None:
    mailbox.answers = {B: "450 mailbox busy", C: "550 no such user"}
    first = await send(server(mailbox), TO_ALL)
    mailbox.answers = {}
    logged = [msgspec.json.encode(first), b"", b"no JSON", b"[1]"]
    earlier = earlier_report(logged)
    assert earlier.left(TO_ALL.to) == [B]
    second = earlier.then(
        await asyncio.to_thread(send_mail, server(mailbox), OPEN, TO_ALL, earlier.left(TO_ALL.to), 5.0)
    )
    assert [mail.to for mail in mailbox.mails] == [[A], [B]]
    assert mailbox.mails[1].message["to"] == f"{A}, {B}, {C}"
    assert second == Report(sent=(A, B), refused={C: "550: no such user"})
    with pytest.raises(Permanent) as caught:
        second.check()
    assert caught.value.code == "RECIPIENT_REFUSED"


async def test_over_many_attempts_nobody_is_counted_twice(mailbox: Mailbox) -> None:
    """Each report includes the recipients of earlier reports; the third attempt reads the first two reports."""
    logged: list[bytes] = []
    for deferred in ([B, C], [C], []):
        mailbox.answers = dict.fromkeys(deferred, "450 busy")
        earlier = earlier_report(logged)
        sent = await asyncio.to_thread(send_mail, server(mailbox), OPEN, TO_ALL, earlier.left(TO_ALL.to), 5.0)
        report = earlier.then(sent)
        logged += [msgspec.json.encode(report), b"it hung up"]
    assert [msgspec.json.decode(one)["sent"] for one in logged[::2]] == [[A], [A, B], [A, B, C]]
    assert [mail.to for mail in mailbox.mails] == [[A], [B], [C]]
    assert Report((A,)).then(Report((A, B))) == Report((A, B))


async def test_where_all_are_refused_and_one_only_for_now_it_is_tried_again(mailbox: Mailbox) -> None:
    mailbox.answers = {A: "550 no", B: "451 later", C: "550 no"}
    with pytest.raises(Transient) as caught:
        (await send(server(mailbox), TO_ALL)).check()
    assert caught.value.code == "SERVICE_UNAVAILABLE"
    mailbox.answers = dict.fromkeys(TO_ALL.to, "550 no")
    with pytest.raises(Permanent) as refused:
        (await send(server(mailbox), TO_ALL)).check()
    assert refused.value.code == "REJECTED"
    assert refused.value.message == f"For {A} the mail server answered 550: no, and for 2 more likewise."
    assert mailbox.mails == []


async def test_a_server_that_closes_among_the_addresses_has_decided_about_none_of_the_others(mailbox: Mailbox) -> None:
    mailbox.answers = {A: "550 no", B: "421 closing"}
    report = await send(server(mailbox), TO_ALL)
    assert report == Report(refused={A: "550: no"}, deferred={B: "421: closing"})
    assert report.left(TO_ALL.to) == [B, C]


# -- connections: addresses and TLS ------------------------------------------------------------------------


async def test_an_address_that_the_guard_refuses_is_not_connected_to(mailbox: Mailbox) -> None:
    for url in ("smtp://127.0.0.1:{port}", "smtp://localhost:{port}"):
        with pytest.raises(Permanent) as caught:
            await send(server(mailbox, url), guard=AddressGuard())
        assert caught.value.code == "BLOCKED"
    assert mailbox.mails == []


async def test_each_address_of_a_name_is_judged_by_itself(mailbox: Mailbox) -> None:
    """The first address is refused and the second is allowed; only the second is connected to."""
    await send(server(mailbox, "smtp://mail.example:{port}"), resolve=lambda host, port: ["10.0.0.1", "127.0.0.1"])
    assert len(mailbox.mails) == 1


@pytest.mark.parametrize("url", ["smtp://user:canary@127.0.0.1:{port}", "smtp+starttls://127.0.0.1:{port}"])
async def test_where_tls_is_asked_for_and_not_offered_nothing_is_sent(mailbox: Mailbox, url: str) -> None:
    with pytest.raises(Permanent) as caught:
        await send(server(mailbox, url))
    assert (caught.value.code, "offers no TLS" in caught.value.message) == ("TLS", True)
    assert "canary" not in str(caught.value)
    assert mailbox.mails == []
    await send(server(mailbox))  # the control: the server refuses only commands that require TLS
    assert len(mailbox.mails) == 1


def judged(_server: object, _session: object, _envelope: object, _mechanism: str, given: Any) -> AuthResult:
    if given.password == b"busy":
        return AuthResult(success=False, handled=False, message="454 4.7.0 Temporary authentication failure")
    right = given.password == b"right"
    return AuthResult(success=right, handled=right)  # if unhandled, the server sends its default answer


@pytest.fixture
async def encrypting(tmp_path: Path) -> AsyncIterator[tuple[Mailbox, ssl.SSLContext]]:
    """A server that offers STARTTLS and requires a password, and an SSL context that trusts the server."""
    served, authority = certificate(tmp_path)
    async with receiving_mail(tls_context=served, authenticator=judged, auth_require_tls=True) as it:
        yield it, ssl.create_default_context(cafile=authority)


@pytest.mark.parametrize("scheme", ["smtp", "smtp+starttls"])
async def test_over_starttls_a_password_is_sent(encrypting: tuple[Mailbox, ssl.SSLContext], scheme: str) -> None:
    mailbox, trust = encrypting
    await send(server(mailbox, scheme + "://user:right@127.0.0.1:{port}"), trust=trust)
    assert len(mailbox.mails) == 1


@pytest.mark.parametrize(
    ("password", "kind", "code", "words"),
    [
        ("wrong", Permanent, "AUTH_FAILED", "refuses the user or the password; correct DOORSTEP_SMTP_URL"),
        ("busy", Transient, "SERVICE_UNAVAILABLE", "cannot check the password now"),
    ],
)
async def test_a_login_that_fails_is_permanent_unless_the_server_says_later(
    encrypting: tuple[Mailbox, ssl.SSLContext], password: str, kind: type[HandlerFailure], code: str, words: str
) -> None:
    mailbox, trust = encrypting
    with pytest.raises(kind) as caught:
        await send(server(mailbox, f"smtp://user:{password}@127.0.0.1:{{port}}"), trust=trust)
    assert (caught.value.code, words in caught.value.message) == (code, True)
    assert password not in caught.value.message.replace("the password", "")
    assert mailbox.mails == []


async def test_a_server_that_lets_nobody_log_in_is_told_in_words(tmp_path: Path) -> None:
    served, authority = certificate(tmp_path)
    async with receiving_mail(tls_context=served, auth_exclude_mechanism=["LOGIN", "PLAIN"]) as mailbox:
        with pytest.raises(Permanent) as caught:
            trust = ssl.create_default_context(cafile=authority)
            await send(server(mailbox, "smtp://user:right@127.0.0.1:{port}"), trust=trust)
    assert (caught.value.code, "supports no usable login" in caught.value.message) == ("AUTH_FAILED", True)


async def test_a_certificate_that_is_not_trusted_or_is_of_another_name_is_not_accepted(
    encrypting: tuple[Mailbox, ssl.SSLContext],
) -> None:
    mailbox, trust = encrypting
    with pytest.raises(Permanent) as untrusted:
        await send(server(mailbox, "smtp://user:right@127.0.0.1:{port}"))
    there: dict[str, Any] = {"resolve": lambda host, port: ["127.0.0.1"], "trust": trust}
    with pytest.raises(Permanent) as other:
        await send(server(mailbox, "smtp://user:right@mail.example:{port}"), **there)
    assert (untrusted.value.code, other.value.code) == ("TLS", "TLS")
    await send(server(mailbox, "smtp://user:right@receiver.test:{port}"), **there)
    assert len(mailbox.mails) == 1


@asynccontextmanager
async def closing_in_the_handshake(words: list[bytes]) -> AsyncIterator[int]:
    """A server that sends each of these lines and reads a line after it, then disconnects during the TLS handshake."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for word in words:
            writer.write(word)
            await reader.readline() if word is not words[-1] else None
        await reader.read(1_000)
        writer.close()

    listener = await asyncio.start_server(close, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("smtps", []),
        ("smtp+starttls", [b"220 hello\r\n", b"250-go on\r\n250 STARTTLS\r\n", b"220 now\r\n"]),
    ],
)
async def test_a_server_that_restarts_in_the_midst_of_the_handshake_is_tried_again(
    scheme: str, words: list[bytes]
) -> None:
    async with closing_in_the_handshake(words) as port:
        with pytest.raises(Transient) as caught:
            await send(MailServer.from_url(f"{scheme}://127.0.0.1:{port}", "a@b.example"))
    assert caught.value.code == "CONNECTION"


async def test_a_server_that_speaks_no_tls_where_tls_is_asked_for_is_given_up(mailbox: Mailbox) -> None:
    with pytest.raises(Permanent) as caught:
        await send(server(mailbox, "smtps://127.0.0.1:{port}"))
    assert caught.value.code == "TLS"


# -- one deadline ------------------------------------------------------------------------------------------


@asynccontextmanager
async def dribbling(words: list[bytes], tail: bytes) -> AsyncIterator[int]:
    """A server that sends each of these lines and reads a line after it, then sends single bytes for longer than any
    client waits."""

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for word in words:
                writer.write(word)
                await reader.readline()
            for byte in tail * 1_000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

    listener = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


async def _is_cut_off(to: MailServer, **options: Any) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(Transient) as caught:
        await send(to, timeout=0.5, **options)
    assert caught.value.code == "TIMEOUT"
    assert asyncio.get_running_loop().time() - began < 2


@pytest.mark.parametrize(
    ("url", "words", "tail"),
    [
        pytest.param("smtp", [], b"220-x", id="its greeting"),
        pytest.param("smtp", [b"220 hello\r\n", b"250 go on\r\n"], b"250-x", id="an answer"),
        pytest.param("smtps", [], b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03" + b"x" * 500, id="TLS"),
        pytest.param(
            "smtp",
            [b"220 hello\r\n", b"250-go on\r\n250 STARTTLS\r\n"],
            b"220 now\r\n\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03" + b"x" * 500,
            id="TLS after STARTTLS",
        ),
    ],
)
async def test_a_server_that_dribbles_is_cut_off_at_the_deadline(url: str, words: list[bytes], tail: bytes) -> None:
    async with dribbling(words, tail) as port:
        await _is_cut_off(MailServer.from_url(f"{url}://127.0.0.1:{port}", "a@b.example"))


async def test_however_many_addresses_do_not_answer_there_is_one_deadline() -> None:
    """A listener whose accept queue is full keeps new connections waiting."""
    with socket.socket() as deaf, ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        to = MailServer(host="mail.example", port=deaf.getsockname()[1], sender="a@b.example")
        await _is_cut_off(to, resolve=lambda host, port: ["127.0.0.1"] * 10)


async def test_nobody_at_home_is_transient() -> None:
    async with receiving_mail() as mailbox:
        gone = server(mailbox)
    with pytest.raises(Transient) as caught:
        await send(gone)
    assert caught.value.code == "CONNECTION"
