"""E-mail over SMTP: the message, the session with the server, and the result for each recipient."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

import msgspec

from doorstep.errors import ConfigError, HandlerFailure, Permanent, Transient
from doorstep.model.attempt import Code
from doorstep.model.record import Record
from doorstep.policy.alert_messages import one_line
from doorstep.transports.address_guard import AddressGuard, Resolve, system_resolve

_WORDS_CHARACTERS_MAX = 200
_NO_COMMON_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION"}
    | {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "DH_KEY_TOO_SMALL"}
)
"""The reasons that OpenSSL gives if the two sides have no TLS version or cipher in common. Any other error may come
from a server that is restarting."""


class Mail(Record, frozen=True, kw_only=True):
    to: Sequence[str]
    """The addresses in the `To` header, including those that have already received the mail."""
    subject: str
    text: str
    mail_id: str
    """The same for all attempts, so that a recipient can recognise a duplicate."""


def send_mail(
    server: MailServer,
    guard: AddressGuard,
    mail: Mail,
    recipients: Sequence[str],
    timeout_seconds: float,
    resolve: Resolve = system_resolve,
    trust: ssl.SSLContext | None = None,
) -> Report:
    """Send a mail to these recipients and return the server's answer for each. Blocks the calling thread.

    Raises Transient or Permanent if the server cannot be reached or rejects the whole mail.
    """
    context = trust or ssl.create_default_context()
    try:
        with _Session(server, guard, timeout_seconds, resolve, context).opened() as session:
            return _sent(session, server, mail, recipients)
    except OSError as error:  # includes the errors of smtplib and ssl
        raise _failure(error) from None


def _sent(session: smtplib.SMTP, server: MailServer, mail: Mail, recipients: Sequence[str]) -> Report:
    try:
        refusals = session.send_message(_message(server, mail), server.sender, list(recipients))
    except smtplib.SMTPRecipientsRefused as error:  # the server may have disconnected before all addresses were sent
        return _report((), error.recipients)
    return _report([one for one in recipients if one not in refusals], refusals)


def _report(sent: Sequence[str], refusals: Mapping[str, tuple[int, bytes]]) -> Report:
    answers = {address: (code, f"{code}: {_said(said)}") for address, (code, said) in refusals.items()}
    return Report(
        tuple(sent),
        {address: answer for address, (code, answer) in answers.items() if code >= 500},
        {address: answer for address, (code, answer) in answers.items() if code < 500},
    )


def _message(server: MailServer, mail: Mail) -> EmailMessage:
    message = EmailMessage()
    message["From"] = Address(display_name="Doorstep", addr_spec=server.sender)
    message["To"] = [Address(addr_spec=address) for address in mail.to]
    message["Subject"] = _header(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{mail.mail_id}@{server.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message


def _header(text: str) -> str:
    """The text made safe for a header. The name of an endpoint may contain line breaks, or encoded line breaks that a
    mail program would decode."""
    return one_line(text)[:_WORDS_CHARACTERS_MAX].replace("=?", "= ?")


def _failure(error: OSError) -> HandlerFailure:
    match error:
        case smtplib.SMTPResponseException():
            words = f"The mail server answered {error.smtp_code}: {_said(error.smtp_error)}"
            if error.smtp_code >= 500:
                return Permanent(Code.REJECTED, words)
            return Transient(Code.SERVICE_UNAVAILABLE, words)
        case smtplib.SMTPNotSupportedError():
            return Permanent(Code.REJECTED, "The mail server does not support a feature that this mail needs.")
        case smtplib.SMTPException():
            return Transient(Code.CONNECTION, "The mail server hung up.")
        case ssl.SSLError() if isinstance(error, ssl.SSLCertVerificationError) or error.reason in _NO_COMMON_TLS:
            return Permanent(Code.TLS, f"The mail server's TLS cannot be used: {error.reason}.")
        case ssl.SSLError():
            return Transient(Code.CONNECTION, "The mail server hung up while TLS was being set up, or after it.")
        case TimeoutError():
            return Transient(Code.TIMEOUT, "The mail server did not answer in time.")
    return Transient(Code.CONNECTION, f"The mail server cannot be reached: {error.strerror or 'it hung up'}.")


def _said(answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return one_line(text)[:_WORDS_CHARACTERS_MAX].strip()


_SPARE_SECONDS = 2.0
"""How much longer the socket timeout is than the deadline. Thus the deadline always ends a wait first, and the error
can be recognised as a timeout."""
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class MailServer(Record, frozen=True, kw_only=True):
    """An SMTP server, and the sender address of the mail sent through it."""

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    """Whether to use TLS from the first byte (`smtps`). Otherwise STARTTLS is used if the server offers it."""
    starttls_required: bool = False
    """Whether to refuse to send without TLS. True for `smtp+starttls`, and whenever the URL contains a user name."""
    user: str = ""
    password: str = ""

    @classmethod
    def from_url(cls, url: str, sender: str) -> MailServer:
        """Parse a URL: `smtp://user:password@host:port`, `smtp+starttls://…` or `smtps://…`."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS[parts.scheme]
        except ValueError:
            raise ConfigError("smtp_url has a port that is not a number; correct DOORSTEP_SMTP_URL") from None
        return cls(
            host=parts.hostname or "",
            port=port,
            sender=sender,
            implicit_tls=parts.scheme == "smtps",
            starttls_required=parts.scheme == "smtp+starttls" or bool(parts.username),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
        )

    @property
    def domain(self) -> str:
        return self.sender.rpartition("@")[2]


class _Session(smtplib.SMTP):
    """An SMTP session that connects only to addresses that the address guard allows."""

    def __init__(
        self, server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, trust: ssl.SSLContext
    ) -> None:
        self._server = server
        self._guard = guard
        self._resolve = resolve
        self._trust = trust
        self._ends_at = time.monotonic() + timeout_seconds
        self._line: socket.socket | None = None
        """A duplicate of the socket. TLS takes over the original, but the duplicate can be shut down at any time."""
        self._was_cut_off = False
        super().__init__(local_hostname=server.domain, timeout=timeout_seconds)

    @contextmanager
    def opened(self) -> Iterator[_Session]:
        """Connect, encrypt if possible, and log in if there is a user name. The session is always closed at the end.

        Raises Transient or Permanent, or an error of smtplib, ssl or the socket.
        """
        deadline = threading.Timer(self._ends_at - time.monotonic(), self._cut_off)
        deadline.daemon = True
        deadline.start()
        try:
            self._begin()
            yield self
            with suppress(OSError):
                self.quit()  # the server has already accepted the mail, so an error here does not matter
        except OSError:  # includes smtplib's own errors
            if self._was_cut_off:
                raise Transient(Code.TIMEOUT, "The mail server took too long.") from None
            raise
        finally:
            deadline.cancel()
            self.close()

    def _begin(self) -> None:
        server = self._server
        self.connect(server.host, server.port)
        self.ehlo_or_helo_if_needed()
        if not server.implicit_tls:
            self._encrypt()
        if server.user:
            self._log_in()

    def _encrypt(self) -> None:
        if self.has_extn("starttls"):
            self.starttls(context=self._trust)
        elif self._server.starttls_required:
            raise Permanent(Code.TLS, "The mail server offers no TLS, and Doorstep sends nothing to it without TLS.")

    def _log_in(self) -> None:
        try:
            self.login(self._server.user, self._server.password)
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPAuthenticationError as error:
            if error.smtp_code < 500:
                words = "The mail server cannot check the password now."
                raise Transient(Code.SERVICE_UNAVAILABLE, words) from None
            words = "The mail server refuses the user or the password; correct DOORSTEP_SMTP_URL."
            raise Permanent(Code.AUTH_FAILED, words) from None
        except smtplib.SMTPException:  # the server offers no login, or no login method that smtplib supports
            words = "The mail server supports no usable login; remove the user from DOORSTEP_SMTP_URL."
            raise Permanent(Code.AUTH_FAILED, words) from None

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # STARTTLS checks the certificate against this name
        opened = self._open(host, port)
        return self._trust.wrap_socket(opened, server_hostname=host) if self._server.implicit_tls else opened

    def _open(self, host: str, port: int) -> socket.socket:
        nowhere = Transient(Code.DNS, f"The name of the mail server, {host}, has no address.")
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            raise nowhere from None
        trouble: Exception = nowhere
        for address in addresses:
            refusal = self._guard.judge(address, port)
            if refusal is not None:
                trouble = Permanent(Code.BLOCKED, f"The mail server is at {address}, which is {refusal}.")
                continue
            try:
                return self._connected(address, port)
            except OSError as error:
                trouble = error
        raise trouble

    def _connected(self, address: str, port: int) -> socket.socket:
        seconds_left = self._ends_at - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError
        opened = socket.create_connection((address, port), seconds_left)
        opened.settimeout(seconds_left + _SPARE_SECONDS)
        self._line = opened.dup()
        if self._was_cut_off:  # the deadline passed a moment ago, before there was a socket to shut down
            opened.close()
            raise TimeoutError
        return opened

    def _cut_off(self) -> None:
        """Shut down the connection, so that a pending wait for the server fails. Called from another thread."""
        self._was_cut_off = True
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        if self._line is not None:
            self._line.close()


class Report(Record, frozen=True):
    """The result for each address. An address in none of the three collections has no result yet."""

    sent: tuple[str, ...] = ()
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    """Addresses that the server refused permanently, each with the server's answer."""
    deferred: dict[str, str] = msgspec.field(default_factory=dict)
    """Addresses that the server refused temporarily, each with the server's answer."""

    def then(self, later: Report) -> Report:
        """Combine this report with a later one, in which the deferred addresses were tried again."""
        return Report(tuple(dict.fromkeys((*self.sent, *later.sent))), self.refused | later.refused, later.deferred)

    def left(self, addresses: Sequence[str]) -> list[str]:
        """The addresses that have neither received the mail nor been refused permanently."""
        return [one for one in addresses if one not in self.sent and one not in self.refused]

    def check(self) -> None:
        """Raise Transient if a retry may help. Otherwise raise Permanent if an address was refused."""
        if self.deferred:
            raise Transient(self._code(Code.SERVICE_UNAVAILABLE), self._words(self.deferred), response=self)
        if self.refused:
            raise Permanent(self._code(Code.REJECTED), self._words(self.refused), response=self)

    def _code(self, of_all: str) -> str:
        """The code of the failure. If some addresses received the mail, the channel works, and the code is one that
        does not affect its circuit."""
        return Code.RECIPIENT_REFUSED if self.sent else of_all

    def _words(self, answers: Mapping[str, str]) -> str:
        address, answer = next(iter(answers.items()))
        others = f", and for {len(answers) - 1} more likewise" if len(answers) > 1 else ""
        had = f" {len(self.sent)} got it." if self.sent else ""
        return f"For {address} the mail server answered {answer}{others}.{had}"


def earlier_report(logged: Sequence[bytes]) -> Report:
    """The combined result of all earlier attempts. `logged` contains their responses from the attempt log, oldest
    first. Each report includes the earlier ones, so the newest report is enough."""
    for response in reversed(logged):
        with suppress(msgspec.MsgspecError):  # this attempt failed without a report, so look at the one before
            return msgspec.json.decode(response, type=Report)
    return Report()
