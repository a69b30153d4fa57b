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
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.dns_cache import Resolve, system_resolve

_WORDS_CHARACTERS_MAX = 200
_UNALIKE = frozenset(
    {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION"}
    | {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "DH_KEY_TOO_SMALL"}
)
"""OpenSSL's words for two that have no TLS in common. Every other trouble may be that of a server that restarts."""


class Mail(Record, frozen=True, kw_only=True):
    to: Sequence[str]
    """Whom it names; those who have it already too."""
    subject: str
    text: str
    mail_id: str
    """The same for all attempts, so that a receiver can tell a repetition."""


def send_mail(
    server: MailServer,
    guard: AddressGuard,
    mail: Mail,
    recipients: Sequence[str],
    timeout_seconds: float,
    resolve: Resolve = system_resolve,
    trust: ssl.SSLContext | None = None,
) -> Report:
    """Hand a mail for some of its addresses to the server, and say what it answered for each. Blocks.

    Transient or Permanent where it was not even asked, or took it for nobody.
    """
    context = trust or ssl.create_default_context()
    try:
        with mail_session(server, guard, timeout_seconds, resolve, context) as session:
            return _sent(session, server, mail, recipients)
    except HandlerFailure:
        raise
    except smtplib.SMTPException as error:
        raise _failure(error) from None
    except ssl.SSLError as error:
        raise _tls_failure(error) from None
    except TimeoutError:
        raise Transient(Code.TIMEOUT, "The mail server did not answer in time.") from None
    except OSError as error:
        raise Transient(
            Code.CONNECTION, f"The mail server cannot be reached: {error.strerror or 'it hung up'}."
        ) from None


def _sent(session: smtplib.SMTP, server: MailServer, mail: Mail, recipients: Sequence[str]) -> Report:
    try:
        refusals = session.send_message(_message(server, mail), server.sender, list(recipients))
    except smtplib.SMTPRecipientsRefused as error:  # of some it may not even have been asked: it hung up before
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
    """In what an endpoint is called there may be line ends, also encoded ones, which a header would decode."""
    return one_line(text)[:_WORDS_CHARACTERS_MAX].replace("=?", "= ?")


def _tls_failure(error: ssl.SSLError) -> HandlerFailure:
    if isinstance(error, ssl.SSLCertVerificationError) or error.reason in _UNALIKE:
        return Permanent(Code.TLS, f"The mail server's TLS cannot be used: {error.reason}.")
    return Transient(Code.CONNECTION, "The mail server hung up while TLS was being set up, or after it.")


def _failure(error: smtplib.SMTPException) -> HandlerFailure:
    if isinstance(error, smtplib.SMTPResponseException):
        words = f"The mail server answered {error.smtp_code}: {_said(error.smtp_error)}"
        return Permanent(Code.REJECTED, words) if error.smtp_code >= 500 else Transient(Code.SERVICE_UNAVAILABLE, words)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Permanent(Code.REJECTED, "The mail server cannot do what is asked of it.")
    return Transient(Code.CONNECTION, "The mail server hung up.")


def _said(answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return one_line(text)[:_WORDS_CHARACTERS_MAX].strip()


_SPARE_SECONDS = 2.0
"""A single wait may last longer than all of them together: so the deadline always ends it, and is known to have."""
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class MailServer(Record, frozen=True, kw_only=True):
    """An SMTP server, and who the mail is from."""

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    """TLS from the first byte (`smtps`); otherwise STARTTLS where the server offers it."""
    starttls_required: bool = False
    """`smtp+starttls`, or there is a password: without TLS nothing is sent."""
    user: str = ""
    password: str = ""

    @classmethod
    def from_url(cls, url: str, sender: str) -> MailServer:
        """Of `smtp://user:password@host:port`, `smtp+starttls://…` or `smtps://…`."""
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
            starttls_required=parts.scheme == "smtp+starttls" or bool(parts.username),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
        )

    @property
    def domain(self) -> str:
        return self.sender.rpartition("@")[2]


@contextmanager
def mail_session(
    server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, trust: ssl.SSLContext
) -> Iterator[smtplib.SMTP]:
    """Connected, encrypted and logged in; Transient or Permanent where that cannot be had."""
    session = _Session(server, guard, timeout_seconds, resolve, trust)
    deadline = threading.Timer(timeout_seconds, session.cut_off)
    deadline.daemon = True
    deadline.start()
    try:
        session.begin()
        yield session
        with suppress(smtplib.SMTPException, OSError):
            session.quit()  # it has taken the mail; how it says goodbye changes nothing
    except OSError:  # smtplib's own errors are among them
        if session.was_cut_off:
            raise Transient(Code.TIMEOUT, "The mail server took too long.") from None
        raise
    finally:
        deadline.cancel()
        session.close()


class _Session(smtplib.SMTP):
    """Connects only to addresses that were judged, each of them by itself."""

    def __init__(
        self, server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, trust: ssl.SSLContext
    ) -> None:
        self._server = server
        self._guard = guard
        self._resolve = resolve
        self._trust = trust
        self._ends_at = time.monotonic() + timeout_seconds
        self._line: socket.socket | None = None
        """A second handle of the connection. TLS takes the first one over; this one can be shut down at any time."""
        self.was_cut_off = False
        super().__init__(local_hostname=server.domain, timeout=timeout_seconds)

    def begin(self) -> None:
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
            raise Permanent(Code.TLS, "The mail server offers no TLS, and without it nothing is sent to it.")

    def _log_in(self) -> None:
        try:
            self.login(self._server.user, self._server.password)
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPAuthenticationError as error:
            raise _refused_login(error.smtp_code) from None
        except smtplib.SMTPException:  # it offers no login, or none that smtplib knows
            words = "The mail server lets nobody log in; take the user out of DOORSTEP_SMTP_URL."
            raise Permanent(Code.AUTH_FAILED, words) from None

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # what STARTTLS checks the certificate against
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
        if self.was_cut_off:  # a moment ago, when there was nothing to shut down
            opened.close()
            raise TimeoutError
        return opened

    def cut_off(self) -> None:
        """From another thread: whoever waits for the server gets an error."""
        self.was_cut_off = True
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        if self._line is not None:
            self._line.close()


def _refused_login(code: int) -> HandlerFailure:
    if code < 500:
        return Transient(Code.SERVICE_UNAVAILABLE, "The mail server cannot check the password now.")
    return Permanent(Code.AUTH_FAILED, "The mail server refuses the user or the password; correct DOORSTEP_SMTP_URL.")


class Report(Record, frozen=True):
    """An address that is in none of the three has not been decided about."""

    sent: tuple[str, ...] = ()
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    """For good, with what the server said."""
    deferred: dict[str, str] = msgspec.field(default_factory=dict)
    """For now."""

    def then(self, later: Report) -> Report:
        """Both together; what was deferred was asked about again."""
        return Report(tuple(dict.fromkeys((*self.sent, *later.sent))), self.refused | later.refused, later.deferred)

    def left(self, addresses: Sequence[str]) -> list[str]:
        """Those that are still to be served."""
        return [one for one in addresses if one not in self.sent and one not in self.refused]

    def check(self) -> None:
        """Transient while somebody may still get it, then Permanent if somebody did not."""
        if self.deferred:
            raise Transient(self._code(Code.SERVICE_UNAVAILABLE), self._words(self.deferred), response=self)
        if self.refused:
            raise Permanent(self._code(Code.REJECTED), self._words(self.refused), response=self)

    def _code(self, of_all: str) -> str:
        """Where some have it the channel works, and its circuit is left alone."""
        return Code.RECIPIENT_REFUSED if self.sent else of_all

    def _words(self, answers: Mapping[str, str]) -> str:
        address, answer = next(iter(answers.items()))
        others = f", and for {len(answers) - 1} more likewise" if len(answers) > 1 else ""
        had = f" {len(self.sent)} got it." if self.sent else ""
        return f"For {address} the mail server answered {answer}{others}.{had}"


def earlier_report(logged: Sequence[bytes]) -> Report:
    """What all attempts before came to, from their responses in the log, oldest first: each report has what was in those
    before it."""
    for response in reversed(logged):
        with suppress(msgspec.MsgspecError):  # that attempt got nowhere, and has nothing to report
            return msgspec.json.decode(response, type=Report)
    return Report()
