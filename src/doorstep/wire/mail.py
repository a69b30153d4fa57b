"""E-mail over SMTP, to a server whose address the guard lets through.

A password goes out only over TLS. The whole attempt has one deadline: a server that dribbles is cut off.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

from doorstep.errors import ConfigError, HandlerFailure, Permanent, Transient
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.sites import Resolve, system_resolve

_PORTS = {"smtp": 25, "smtps": 465}
_SUBJECT_CHARACTERS_MAX = 200


class MailServer(Noun, frozen=True, kw_only=True):
    """An SMTP server, and who the mail is from."""

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    """TLS from the first byte (`smtps`); otherwise STARTTLS where the server offers it."""
    user: str = ""
    password: str = ""

    @classmethod
    def from_url(cls, url: str, sender: str) -> MailServer:
        """Of `smtp://user:password@host:port` or `smtps://…`."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS[parts.scheme]
        except ValueError:
            raise ConfigError("smtp_url has a port that is no number; correct DOORSTEP_SMTP_URL") from None
        return cls(
            host=parts.hostname or "",
            port=port,
            sender=sender,
            implicit_tls=parts.scheme == "smtps",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
        )


class Mail(Noun, frozen=True, kw_only=True):
    to: Sequence[str]
    subject: str
    text: str
    mail_id: str
    """The same for all attempts, so that a receiver can tell a repetition."""


def send_mail(
    server: MailServer,
    guard: AddressGuard,
    mail: Mail,
    timeout_seconds: float,
    resolve: Resolve = system_resolve,
    trust: ssl.SSLContext | None = None,
) -> dict[str, str]:
    """Hand a mail to the server; returns the addresses that it refused, if it took at least one. Blocks."""
    context = trust or ssl.create_default_context()
    try:
        with _session(server, guard, timeout_seconds, resolve, context) as session:
            refused = session.send_message(_message(server, mail))
    except HandlerFailure:
        raise
    except smtplib.SMTPException as error:
        raise _failure(error) from None
    except ssl.SSLError as error:
        raise Permanent(Code.TLS, f"The mail server's TLS cannot be used: {error.reason or 'it failed'}.") from None
    except TimeoutError:
        raise Transient(Code.TIMEOUT, "The mail server did not answer in time.") from None
    except OSError as error:
        raise Transient(
            Code.CONNECTION, f"The mail server cannot be reached: {error.strerror or 'it hung up'}."
        ) from None
    return {address: f"{code} {_said(said)}" for address, (code, said) in refused.items()}


@contextmanager
def _session(
    server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, context: ssl.SSLContext
) -> Iterator[smtplib.SMTP]:
    session = _Guarded(guard, resolve, context if server.implicit_tls else None, timeout_seconds)
    deadline = threading.Timer(timeout_seconds, session.cut_off)
    deadline.daemon = True
    deadline.start()
    try:
        session.connect(server.host, server.port)
        session.ehlo_or_helo_if_needed()
        secret = server.implicit_tls
        if not secret and session.has_extn("starttls"):
            session.starttls(context=context)
            secret = True
        if server.user:
            if not secret:
                raise Permanent(Code.TLS, "The mail server offers no TLS, and a password is not sent without.")
            session.login(server.user, server.password)
        yield session
        with suppress(smtplib.SMTPException, OSError):
            session.quit()  # it has taken the mail; how it says goodbye changes nothing
    except OSError:
        if session.was_cut_off:
            raise Transient(Code.TIMEOUT, "The mail server took too long.") from None
        raise
    finally:
        deadline.cancel()
        session.close()


class _Guarded(smtplib.SMTP):
    """Connects only to addresses that were judged, each of them by itself."""

    def __init__(
        self, guard: AddressGuard, resolve: Resolve, tls: ssl.SSLContext | None, timeout_seconds: float
    ) -> None:
        self._guard = guard
        self._resolve = resolve
        self._tls = tls
        self.was_cut_off = False
        super().__init__(timeout=timeout_seconds)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # what STARTTLS checks the certificate against
        opened = self._open(host, port, timeout)
        return opened if self._tls is None else self._tls.wrap_socket(opened, server_hostname=host)

    def _open(self, host: str, port: int, timeout: float) -> socket.socket:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            raise Transient(Code.DNS, f"The name of the mail server, {host}, has no address.") from None
        trouble: Exception = Transient(Code.DNS, f"The name of the mail server, {host}, has no address.")
        for address in addresses:
            refusal = self._guard.judge(address, port)
            if refusal is not None:
                trouble = Permanent(Code.BLOCKED, f"The mail server is at {address}, which is {refusal}.")
                continue
            try:
                return socket.create_connection((address, port), timeout)
            except OSError as error:
                trouble = error
        raise trouble

    def cut_off(self) -> None:
        """From another thread: whoever waits for the server gets an error."""
        self.was_cut_off = True
        opened: Any = self.sock
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


def _message(server: MailServer, mail: Mail) -> EmailMessage:
    message = EmailMessage()
    message["From"] = Address(display_name="Doorstep", addr_spec=server.sender)
    message["To"] = [Address(addr_spec=address) for address in mail.to]
    message["Subject"] = _one_line(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{mail.mail_id}@{server.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message


def _one_line(text: str) -> str:
    """What an endpoint is called may have line ends in it; a header must not."""
    return "".join(one if one.isprintable() else " " for one in text)[:_SUBJECT_CHARACTERS_MAX]


def _failure(error: smtplib.SMTPException) -> HandlerFailure:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return Permanent(Code.AUTH_FAILED, "The mail server refuses the user or the password.")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, said = max(error.recipients.values(), key=lambda one: one[0])
        return _by_code(code, _said(said))
    if isinstance(error, smtplib.SMTPResponseException):
        return _by_code(error.smtp_code, _said(error.smtp_error))
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Permanent(Code.REJECTED, "The mail server cannot do what is asked of it.")
    return Transient(Code.CONNECTION, "The mail server hung up.")


def _by_code(code: int, said: str) -> HandlerFailure:
    words = f"The mail server answered {code}: {said}"
    return Transient(Code.SERVICE_UNAVAILABLE, words) if code < 500 else Permanent(Code.REJECTED, words)


def _said(answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return _one_line(text)
